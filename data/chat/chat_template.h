#pragma once

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/chat/jinja/template.h"

// The text that a chat model was trained to see a conversation as: its chat template, rendered as
// transformers' apply_chat_template does.
namespace focus {

/// What a template sees beside the messages.
struct ChatVariables {
  std::map<std::string, std::string> special_tokens;  // bos_token, eos_token ... -> their texts
  nlohmann::ordered_json tools, documents;            // null: none
  bool add_generation_prompt = true;                  // ends where the assistant's turn begins
  nlohmann::ordered_json others = nlohmann::ordered_json::object();  // enable_thinking ...
  std::optional<std::tm> now;                                        // empty: the present

  /// Takes what a line of a data set says beside its messages: tools and documents (lists, or their
  /// JSON as a text) and the members of chat_template_kwargs. Throws std::runtime_error, a line
  /// that begins with `where`.
  void take(const nlohmann::ordered_json& line, const std::string& where);
  /// Takes "KEY=VALUE", such as enable_thinking=false: JSON, or else a text. Throws likewise.
  void take_word(const std::string& word, const std::string& where);
};

class ChatTemplate {
 public:
  /// Throws std::runtime_error with one line that begins with `where`: what the template holds that
  /// is wrong or not supported, and in which line.
  ChatTemplate(const std::string& source, std::string where, const jinja::Limits& limits = {});

  /// `messages`: a list of {"role": ..., "content": ...} and whatever else the template reads.
  /// Members that are null count as absent, reasoning is passed under all names that templates
  /// read it by. `generated`, where not null, gets the parts that the template marks as the
  /// assistant's with {% generation %}. Throws std::runtime_error with one line: a template may
  /// refuse messages.
  std::string render(const nlohmann::ordered_json& messages, const ChatVariables& variables,
                     jinja::TextRanges* generated = nullptr) const;

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  jinja::Template template_;
  std::string where_;
};

/// The file of a template alone.
inline constexpr const char* kChatTemplate = "chat_template.jinja";

/// Plain file name -> bytes: chat_template.jinja, tokenizer_config.json, special_tokens_map.json.
using ChatFiles = std::map<std::string, std::string>;

/// The template of a model's files: chat_template.jinja, else the "chat_template" of
/// tokenizer_config.json, which may be a list of named ones (`name`; "default" where that is
/// empty). Throws std::runtime_error without a template, with what to do; `where` names the model.
ChatTemplate find_chat_template(const ChatFiles& files, const std::string& name,
                                const std::string& where);

/// Whether there is one. Throws std::runtime_error where tokenizer_config.json is no JSON object.
bool has_chat_template(const ChatFiles& files, const std::string& where);

/// The special tokens of a model's files, or else of its tokenizer's class, by the names that
/// templates know them by.
std::map<std::string, std::string> chat_special_tokens(const ChatFiles& files,
                                                       const std::string& where);

/// The tools of a file: a JSON list. Throws std::runtime_error with one line.
nlohmann::ordered_json parse_tools(const std::string& text, const std::string& where);

/// Messages of a file: a JSON list of them, or one in each line. Throws std::runtime_error with one
/// line where it is something else.
nlohmann::ordered_json parse_messages(const std::string& text, const std::string& where);

}  // namespace focus
