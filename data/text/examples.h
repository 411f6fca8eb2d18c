#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

// JSON as data sets have it, a record in each line or in a list: a text, a prompt with its
// completion, or a conversation.
namespace focus {

/// What a line says.
struct Example {
  enum class Kind {
    text,      // {"text": "..."}, or another field
    prompt,    // {"prompt": "...", "completion": "..."}
    messages,  // {"messages": [{"role": ..., "content": ...}, ...]}, prompt and completion as such,
               // or the forms of ShareGPT and Alpaca
  };
  Kind kind = Kind::text;
  std::string text = {};  // the text, or the prompt
  std::string completion = {};
  /// A record of "prompt", "chosen" and "rejected" has one: the same with the rejected answer. This
  /// one has the chosen.
  std::vector<Example> rejected = {};
  nlohmann::ordered_json messages = nullptr;
  /// The first message that may count; those of a prompt do not.
  std::size_t first_of_completion = 0;
  /// Those of "tools", "documents" and "chat_template_kwargs" that are there, for the template.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  std::size_t line = 1;  // or the number in a list
  bool in_list = false;

  /// "line 3" or "record 3".
  std::string place() const;
};

/// Whether a data set has a message learned: not where "weight", "train", "training" or "loss" of
/// it is 0 or false. Throws std::runtime_error, a line that begins with `where`, for other values.
bool is_learned(const nlohmann::ordered_json& message, const std::string& where);

/// What it says as one text, as a tokenizer may be trained on it: a prompt with its completion, or
/// what messages hold, a line each.
std::string text_of(const Example& example);

/// Whether a text holds records: JSON objects in lines or in a list.
bool holds_records(std::string_view text);
/// The same of a file, which does anyway where its name, packed (.gz, .xz, ...) or not, ends in
/// .jsonl, .json, .ndjson or .jsonlines, in capitals too.
bool holds_records(const std::filesystem::path& path, std::string_view text);
/// Calls f for each record of `text`: lines that are not blank, the items of a list, or one object
/// in several lines. `text_field` names the member that holds a text. Throws std::runtime_error
/// with one line that begins with `where` and the record's number where it is no such object, and
/// where records differ in kind.
void for_each_example(std::string_view text, const std::string& where,
                      const std::string& text_field, const std::function<void(Example&&)>& f);

}  // namespace focus
