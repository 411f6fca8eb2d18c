#include "data/text/examples.h"

#include <array>
#include <optional>
#include <utility>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"
#include "data/text/text.h"

namespace focus {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;
constexpr std::string_view kJsonBlanks = " \t\r\n";

std::string_view name_of(Example::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"a text", "a prompt and its completion",
                                                      "messages"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// What is wrong with a member of a record, in JsonView's words.
[[noreturn]] void refuse_member(const Ordered& row, const char* key, const std::string& place,
                                const std::function<void(const JsonView&)>& check) {
  const Json json = row;
  check(JsonView(json, place).at(key));
  fail("{}: {} is not as expected", place, json_quoted(key));
}

std::string string_in(const Ordered& row, const std::string& key, const std::string& place) {
  if (!row.at(key).is_string())
    refuse_member(row, key.c_str(), place, [](const JsonView& value) { value.string(); });
  return row.at(key).get<std::string>();
}

/// A list of messages, of which each has a role.
void check_messages(const Ordered& row, const char* key, const std::string& place) {
  const auto has_role = [](const Ordered& message) {
    return message.is_object() && message.contains("role") && message["role"].is_string();
  };
  const Ordered& list = row.at(key);
  if (list.is_array() && !list.empty() && std::ranges::all_of(list, has_role)) return;
  refuse_member(row, key, place, [](const JsonView& messages) {
    if (messages.array_size() == 0)
      fail("{}: expected a list of messages, but it is empty", messages.where());
    for (std::size_t i = 0; i < messages.array_size(); ++i) messages.item(i).at("role").string();
  });
}

/// What goes to the template beside the messages.
Ordered variables_of(const Ordered& row) {
  Ordered variables = Ordered::object();
  for (const char* key : {"tools", "documents", "chat_template_kwargs"})
    if (row.contains(key) && !row[key].is_null()) variables[key] = row[key];
  return variables;
}

Example prompt_of(const Ordered& row, const std::string& place) {
  Example example{.kind = Example::Kind::prompt};
  if (!row.at("prompt").is_array()) {
    example.text = string_in(row, "prompt", place);
    example.completion = string_in(row, "completion", place);
    return example;
  }
  check_messages(row, "prompt", place);
  check_messages(row, "completion", place);
  example.kind = Example::Kind::messages;
  example.messages = row.at("prompt");
  example.first_of_completion = example.messages.size();
  for (const auto& message : row.at("completion")) example.messages.push_back(message);
  example.variables = variables_of(row);
  return example;
}

/// `row` has the members in the order of the file, which is that in which a template prints them.
Example example_of(const Ordered& row, const std::string& place, const std::string& text_field) {
  if (row.contains("messages")) {
    check_messages(row, "messages", place);
    return {.kind = Example::Kind::messages,
            .messages = row.at("messages"),
            .variables = variables_of(row)};
  }
  if (row.contains("prompt") && row.contains("completion")) return prompt_of(row, place);
  if (row.contains(text_field)) return {.text = string_in(row, text_field, place)};
  if (row.contains("conversations"))
    fail(
        "{}: \"conversations\" with \"from\" and \"value\" are not supported; write "
        "{{\"messages\": [{{\"role\": \"user\", \"content\": ...}}, ...]}}",
        place);
  std::string members;
  for (const auto& [key, value] : row.items())
    members += (members.empty() ? "" : ", ") + json_quoted(key);
  fail(
      "{}: expected \"messages\", \"prompt\" and \"completion\", or {} (set dataset_text_field for "
      "another name), got {}",
      place, json_quoted(text_field), members.empty() ? "nothing" : shown_whole(members));
}

/// Calls f(text or value, number, in a list) for each record.
template <class F>
void for_each_record(std::string_view text, const std::string& where, F&& f) {
  const std::size_t first = text.find_first_not_of(kJsonBlanks);
  const bool list = first != text.npos && text[first] == '[';
  // One object in several lines: the first line is not valid JSON.
  const std::string_view row = text.substr(std::min(first, text.size()));
  const bool spread =
      row.starts_with('{') && !Json::accept(row.substr(0, row.find('\n'))) && Json::accept(text);
  if (!list && !spread)
    return for_each_row(text, [&](std::string_view one, std::size_t line) {
      f(parse_ordered_json(one, fmt::format("{}: line {}", where, line)), line, false);
    });
  Ordered all = parse_ordered_json(text, where);
  if (!list) return f(all, 1, true);
  for (std::size_t i = 0; i < all.size(); ++i) f(std::exchange(all[i], nullptr), i + 1, true);
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

std::string Example::place() const {
  return fmt::format("{} {}", in_list ? "record" : "line", line);
}

bool is_learned(const Ordered& message, const std::string& where) {
  for (const char* key : {"weight", "train", "training", "loss"}) {
    if (!message.contains(key) || message[key].is_null()) continue;
    const Ordered& said = message[key];
    if (said == false || said == 0) return false;
    if (said != true && said != 1)
      fail("{}: {} of a message is {}; only 0, false, 1 and true are supported", where,
           json_quoted(key), shown_json(said));
  }
  return true;
}

bool holds_records(std::string_view text) {
  if (text.starts_with("\uFEFF")) text.remove_prefix(3);  // a byte-order mark
  const std::size_t first = text.find_first_not_of(kJsonBlanks);
  if (first == text.npos) return false;
  if (text[first] == '[') {
    const std::size_t next = text.find_first_not_of(kJsonBlanks, first + 1);
    return next != text.npos && text[next] == '{' && Json::accept(text);
  }
  int rows = 0;
  bool objects = text[first] == '{';
  while (objects && rows < 2 && !text.empty()) {
    const std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(row.size() + 1, text.size()));
    const std::size_t begin = row.find_first_not_of(kJsonBlanks);
    if (begin == row.npos) continue;
    objects = row[begin] == '{' && Json::accept(row);
    ++rows;
  }
  return objects && rows > 0;
}

bool holds_records(const std::filesystem::path& path, std::string_view text) {
  constexpr std::array<std::string_view, 4> kEndings = {".jsonl", ".json", ".ndjson", ".jsonlines"};
  return std::ranges::find(kEndings, small_ending(name_without_packing(path))) != kEndings.end() ||
         holds_records(text);
}

void for_each_example(std::string_view text, const std::string& where,
                      const std::string& text_field, const std::function<void(Example&&)>& f) {
  std::optional<Example::Kind> kind;
  std::string first;
  bool told = false;
  for_each_record(text, where, [&](const Ordered& row, std::size_t number, bool in_list) {
    const Example here{.line = number, .in_list = in_list};
    const std::string place = fmt::format("{}: {}", where, here.place());
    if (!row.is_object())
      fail("{}: expected an object, {{\"{}\": ...}}, {}, got {}", place, shown(text_field),
           in_list ? "as each record" : "on each line", shown_json(row));
    Example example = example_of(row, place, text_field);
    example.line = number;
    example.in_list = in_list;
    if (!kind) {
      kind = example.kind;
      first = here.place();
    }
    if (example.kind != *kind)
      fail("{}: it has {}, but {} has {}; put them into separate files", place,
           name_of(example.kind), first, name_of(*kind));
    const bool left = example.kind == Example::Kind::messages ? row.contains("functions")
                                                              : !variables_of(row).empty();
    if (left && !std::exchange(told, true))
      notice("{}: its {} are not used{}", place,
             example.kind == Example::Kind::messages ? "functions" : "tools or documents",
             example.kind == Example::Kind::messages ? ": write them as tools"
                                                     : ": only messages have a chat template");
    f(std::move(example));
  });
}

}  // namespace focus
