#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/chat/jinja/budget.h"
#include "data/text/examples.h"
#include "data/text/text.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokens/token_file.h"

namespace focus {

/// How lines of JSONL are read: keys of a config's data section, which TRL's SFTConfig has too.
struct ExampleSettings {
  std::string dataset_text_field = "text";
  bool completion_only_loss = true;
  bool assistant_only_loss = true;
  std::string chat_template_path, tools;
  std::vector<std::string> template_values;

  template <class F>
  void visit(F&& f) {
    f("dataset_text_field", dataset_text_field,
      ".jsonl files: name of the text field, for lines without messages or prompt and completion");
    f("completion_only_loss", completion_only_loss,
      "{\"prompt\", \"completion\"} lines: compute the loss only on the completion and its EOS");
    f("assistant_only_loss", assistant_only_loss,
      "{\"messages\"} lines: compute the loss only on the assistant's turns and their end tokens");
    f("chat_template_path", chat_template_path,
      "{\"messages\"} lines: a .jinja file that replaces the model's chat template");
    f("tools", tools,
      "{\"messages\"} lines: a .json file with the list of tools, for lines without \"tools\"");
    f("template", template_values,
      "{\"messages\"} lines: KEY=VALUE for the chat template, such as enable_thinking=false; a "
      "line's \"chat_template_kwargs\" precede");
  }
};

/// What a chat template writes.
struct ChatPart {
  nlohmann::ordered_json messages;
  bool add_generation_prompt = true;       // up to where the assistant's turn begins
  nlohmann::ordered_json variables = {};   // Example::variables
  jinja::TextRanges* generated = nullptr;  // gets what the template marks as the assistant's
};

/// A conversation as the model's chat template writes it. Throws std::runtime_error where it
/// cannot.
using RenderChat = std::function<std::string(const ChatPart& part)>;

/// What turns lines of JSONL into tokens, beside the tokenizer.
struct ExampleFormat {
  ExampleSettings settings = {};
  TextEnds ends = {};                    // around a text; before a prompt its prefix
  std::optional<std::int32_t> end = {};  // after a completion; none: nothing
  RenderChat chat = {};                  // empty: messages are refused
  std::string chat_identity = {};        // tells templates apart
};

/// A line as the model reads it.
struct ExampleTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> counts;  // 1 where a token is one that the loss is of; as many as ids
  bool trains() const;               // whether any but the first is
};

/// A text between its ends; a prompt with its completion as one text, and the end; messages through
/// the chat template, which writes all special tokens itself. Of a completion or a turn of the
/// assistant those tokens count that hold any of it: what {% generation %} marks, else what
/// lies between the generation prompt and the next message; of a turn whose end the template
/// marks by a special token, nothing behind that. A message counts unless is_learned() says no.
/// Throws std::runtime_error, lines that begin with `where`.
ExampleTokens tokens_of(const Example& example, const Tokenizer& tokenizer,
                        const ExampleFormat& format, const std::string& where);

struct TokenizeOptions {
  std::string document_separator = {};  // empty: each file is one document
  TextEnds ends = {};                   // put around every document, such as BOS before it
  /// Whether the `end` of `examples` is put behind each document, where there are several and
  /// `ends` has no suffix; prompts and messages have their own.
  bool end_documents = false;
  std::filesystem::path cache_dir = {};  // empty: nothing is kept
  bool preferences = false;              // records have two answers: two documents of each
  ExampleFormat examples = {};           // of .jsonl; its `ends` are these
};

/// The tokens of text files (see read_document_file and expand_text_paths), taken from the cache
/// where the same texts were tokenized before with the same tokenizer and options. A damaged cache
/// file is rewritten. Each record (holds_records()) is a document; where there are prompts or
/// messages the file says which tokens the loss is of (tokens_of()), and examples of which none is
/// are left out. Notices say so, also where the tokens are from the cache, and whether anything
/// separates documents. Throws std::runtime_error for texts that cannot be read or have no
/// tokens.
TokenFile tokenize_cached(std::span<const std::filesystem::path> paths, const Tokenizer& tokenizer,
                          const TokenizeOptions& options);
/// The same of texts of which some are in memory: these follow the files, and nothing is kept.
TokenFile tokenize_texts(const Texts& texts, const Tokenizer& tokenizer,
                         const TokenizeOptions& options);

}  // namespace focus
