#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// JSONL as data sets have it: a text, a prompt with its completion, or a conversation in each line.
namespace focus {

/// What a line says.
struct Example {
  enum class Kind {
    text,      // {"text": "..."}, or another field
    prompt,    // {"prompt": "...", "completion": "..."}
    messages,  // {"messages": [{"role": ..., "content": ...}, ...]}, or prompt and completion as
               // such
  };
  Kind kind = Kind::text;
  std::string text = {};  // the text, or the prompt
  std::string completion = {};
  nlohmann::ordered_json messages = nullptr;
  /// The first message that may count; those of a prompt do not.
  std::size_t first_of_completion = 0;
  std::size_t line = 1;
};

/// What it says as one text, as a tokenizer may be trained on it: a prompt with its completion, or
/// what messages hold, a line each.
std::string text_of(const Example& example);

/// Whether a file of that name, compressed (.gz, .xz, ...) or not, is JSONL.
bool is_jsonl(const std::filesystem::path& path);

/// Calls f for each line of `text` that is not blank. `text_field` names the member that holds a
/// text. Throws std::runtime_error with one line that begins with `where` and the line's number
/// where it is no such object, and where lines differ in kind.
void for_each_example(std::string_view text, const std::string& where,
                      const std::string& text_field, const std::function<void(Example&&)>& f);

}  // namespace focus
