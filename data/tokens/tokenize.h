#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokens/example_tokens.h"
#include "data/tokens/token_file.h"

namespace focus {

struct TokenizeOptions {
  std::string document_separator = {};   // empty: each file is one document
  TextEnds ends = {};                    // put around every document, such as BOS before it
  std::filesystem::path cache_dir = {};  // empty: nothing is kept
  ExampleFormat examples = {};           // of .jsonl; its `ends` are these
};

/// The tokens of text files (see read_document_file and expand_text_paths), taken from the cache
/// where the same texts were tokenized before with the same tokenizer and options. A damaged cache
/// file is rewritten. Each line of a .jsonl is a document; where there are prompts or messages the
/// file says which tokens the loss is of (tokens_of()), and examples of which none is are left out,
/// with a notice. Throws std::runtime_error for texts that cannot be read or have no tokens.
TokenFile tokenize_cached(std::span<const std::filesystem::path> paths, const Tokenizer& tokenizer,
                          const TokenizeOptions& options);

}  // namespace focus
