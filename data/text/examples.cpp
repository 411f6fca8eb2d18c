#include "data/text/examples.h"

#include <array>
#include <optional>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/text/text.h"

namespace focus {
namespace {

using Json = nlohmann::json;

std::string_view name_of(Example::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"a text", "a prompt and its completion",
                                                      "messages"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// A list of messages, of which each has a role.
void check_messages(const JsonView& messages) {
  if (messages.array_size() == 0)
    fail("{}: expected a list of messages, but it is empty", messages.where());
  for (std::size_t i = 0; i < messages.array_size(); ++i) messages.item(i).at("role").string();
}

/// Members in the order of the file, which is the order in which a template prints them.
nlohmann::ordered_json in_order(std::string_view row) { return nlohmann::ordered_json::parse(row); }

Example prompt_of(const JsonView& object, std::string_view row) {
  Example example{.kind = Example::Kind::prompt};
  const JsonView prompt = object.at("prompt"), completion = object.at("completion");
  if (!prompt.json().is_array()) {
    example.text = prompt.string();
    example.completion = completion.string();
    return example;
  }
  check_messages(prompt);
  check_messages(completion);
  const nlohmann::ordered_json all = in_order(row);
  example.kind = Example::Kind::messages;
  example.messages = all.at("prompt");
  example.first_of_completion = example.messages.size();
  for (const auto& message : all.at("completion")) example.messages.push_back(message);
  return example;
}

Example example_of(const JsonView& object, std::string_view row, const std::string& text_field) {
  const Json& json = object.object();
  if (json.contains("messages")) {
    check_messages(object.at("messages"));
    return {.kind = Example::Kind::messages, .messages = in_order(row).at("messages")};
  }
  if (json.contains("prompt") && json.contains("completion")) return prompt_of(object, row);
  if (json.contains(text_field)) return {.text = object.at(text_field).string()};
  if (json.contains("conversations"))
    fail(
        "{}: \"conversations\" with \"from\" and \"value\" are not supported; write "
        "{{\"messages\": [{{\"role\": \"user\", \"content\": ...}}, ...]}}",
        object.where());
  std::string members;
  for (const auto& [key, value] : json.items())
    members += (members.empty() ? "" : ", ") + json_quoted(key);
  fail(
      "{}: expected \"messages\", \"prompt\" and \"completion\", or {} (set dataset_text_field for "
      "another name), got {}",
      object.where(), json_quoted(text_field), members.empty() ? "nothing" : shown_whole(members));
}

}  // namespace

std::string text_of(const Example& example) {
  if (example.kind != Example::Kind::messages) return example.text + example.completion;
  std::string text;
  for (const auto& message : example.messages)
    if (const auto content = message.find("content");
        content != message.end() && content->is_string())
      text += content->get<std::string>() + "\n";
  return text;
}

bool is_jsonl(const std::filesystem::path& path) {
  return name_without_packing(path).extension() == ".jsonl";
}

void for_each_example(std::string_view text, const std::string& where,
                      const std::string& text_field, const std::function<void(Example&&)>& f) {
  std::optional<Example::Kind> kind;
  std::size_t first = 1;
  for_each_row(text, [&](std::string_view row, std::size_t line) {
    const std::string place = fmt::format("{}: line {}", where, line);
    const Json json = parse_strict_json(row, place);
    if (!json.is_object())
      fail("{}: expected an object, {{\"{}\": ...}}, on each line, got {}", place,
           shown(text_field), shown_json(json));
    Example example = example_of(JsonView(json, place), row, text_field);
    example.line = line;
    if (!kind) {
      kind = example.kind;
      first = line;
    }
    if (example.kind != *kind)
      fail("{}: it has {}, but line {} has {}; put them into separate files", place,
           name_of(example.kind), first, name_of(*kind));
    f(std::move(example));
  });
}

}  // namespace focus
