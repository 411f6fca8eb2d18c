#include "data/text/examples.h"

#include <array>
#include <map>
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

Example prompt_of(const Ordered& row, const std::string& place, const char* answer = "completion") {
  Example example{.kind = Example::Kind::prompt};
  if (!row.at("prompt").is_array()) {
    example.text = string_in(row, "prompt", place);
    example.completion = string_in(row, answer, place);
    return example;
  }
  check_messages(row, "prompt", place);
  check_messages(row, answer, place);
  example.kind = Example::Kind::messages;
  example.messages = row.at("prompt");
  example.first_of_completion = example.messages.size();
  for (const auto& message : row.at(answer)) example.messages.push_back(message);
  example.variables = variables_of(row);
  return example;
}

/// Where there is no prompt, the messages that both answers begin with are it, as in TRL.
Example preference_of(Ordered row, const std::string& place) {
  if (!row.contains("prompt")) {
    for (const char* key : {"chosen", "rejected"}) check_messages(row, key, place);
    row["prompt"] = Ordered::array();  // first: it may move the others
    Ordered &prompt = row["prompt"], &chosen = row["chosen"], &rejected = row["rejected"];
    std::size_t shared = 0;
    while (shared + 1 < std::min(chosen.size(), rejected.size()) &&
           chosen[shared] == rejected[shared])
      ++shared;
    for (std::size_t i = 0; i < shared; ++i) prompt.push_back(chosen[i]);
    for (Ordered* const answer : {&chosen, &rejected})
      answer->erase(answer->begin(), answer->begin() + static_cast<std::ptrdiff_t>(shared));
    if (shared == 0) fail("{}: \"chosen\" and \"rejected\" do not begin alike", place);
  }
  Example example = prompt_of(row, place, "chosen");
  example.rejected.push_back(prompt_of(row, place, "rejected"));
  return example;
}

/// ShareGPT's {"conversations": [{"from": "human", "value": ...}, ...]} as messages; what else a
/// turn has, such as its weight, stays.
Example conversation_of(const Ordered& row, const std::string& place) {
  static const std::map<std::string, std::string> kRoles = {
      {"human", "user"},      {"user", "user"},           {"gpt", "assistant"},
      {"model", "assistant"}, {"assistant", "assistant"}, {"system", "system"},
      {"tool", "tool"}};
  const auto is_turn = [](const Ordered& turn) {
    return turn.is_object() && turn.contains("from") && turn["from"].is_string() &&
           turn.contains("value") && turn["value"].is_string();
  };
  const Ordered& turns = row.at("conversations");
  if (!turns.is_array() || turns.empty() || !std::ranges::all_of(turns, is_turn))
    refuse_member(row, "conversations", place, [](const JsonView& list) {
      if (list.array_size() == 0)
        fail("{}: expected a list of turns, but it is empty", list.where());
      for (std::size_t i = 0; i < list.array_size(); ++i) {
        list.item(i).at("from").string();
        list.item(i).at("value").string();
      }
    });
  Example example{.kind = Example::Kind::messages,
                  .messages = Ordered::array(),
                  .variables = variables_of(row)};
  if (row.contains("system") && !row["system"].is_null())
    example.messages.push_back({{"role", "system"}, {"content", string_in(row, "system", place)}});
  for (const Ordered& turn : turns) {
    const auto from = turn["from"].get<std::string>();
    const auto role = kRoles.find(from);
    if (role == kRoles.end())
      fail(
          "{}: a turn is \"from\" {}, expected human, gpt, system or tool; for other roles write "
          "\"messages\" with \"role\" and \"content\"",
          place, shown(from));
    Ordered message = {{"role", role->second}, {"content", turn["value"]}};
    for (const auto& [key, value] : turn.items())
      if (key != "from" && key != "value") message[key] = value;
    example.messages.push_back(std::move(message));
  }
  return example;
}

/// Alpaca's {"instruction": ..., "input": ..., "output": ...} as a turn of each, behind "system"
/// and "history" where these are.
Example instruction_of(const Ordered& row, const std::string& place) {
  Example example{.kind = Example::Kind::messages, .messages = Ordered::array()};
  const auto add = [&](const char* role, std::string content) {
    example.messages.push_back({{"role", role}, {"content", std::move(content)}});
  };
  const auto there = [&](const char* key) { return row.contains(key) && !row[key].is_null(); };
  const std::string system = there("system") ? string_in(row, "system", place) : "";
  if (!system.empty()) add("system", system);
  if (there("history")) {
    const auto is_pair = [](const Ordered& pair) {
      return pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
    };
    const Ordered& history = row["history"];
    if (!history.is_array() || !std::ranges::all_of(history, is_pair))
      fail("{}: expected \"history\" to be a list of [instruction, output], got {}", place,
           shown_json(history));
    for (const Ordered& pair : history) {
      add("user", pair[0].get<std::string>());
      add("assistant", pair[1].get<std::string>());
    }
  }
  const std::string input = there("input") ? string_in(row, "input", place) : "";
  add("user", string_in(row, "instruction", place) + (input.empty() ? "" : "\n\n" + input));
  add("assistant", string_in(row, "output", place));
  return example;
}

/// `row` has the members in the order of the file, which is that in which a template prints them.
Example example_of(const Ordered& row, const std::string& place, const std::string& text_field) {
  if (row.contains("chosen") && row.contains("rejected")) return preference_of(row, place);
  if (row.contains("messages")) {
    check_messages(row, "messages", place);
    return {.kind = Example::Kind::messages,
            .messages = row.at("messages"),
            .variables = variables_of(row)};
  }
  if (row.contains("prompt") && row.contains("completion")) return prompt_of(row, place);
  if (row.contains("conversations")) return conversation_of(row, place);
  if (row.contains("instruction") && row.contains("output")) return instruction_of(row, place);
  if (row.contains(text_field)) return {.text = string_in(row, text_field, place)};
  std::string members;
  for (const auto& [key, value] : row.items())
    members += (members.empty() ? "" : ", ") + json_quoted(key);
  fail(
      "{}: expected \"messages\", \"conversations\", \"instruction\" and \"output\", \"prompt\" "
      "and \"completion\" (or \"chosen\" and \"rejected\"), or {} (set dataset_text_field for "
      "another "
      "name), got {}",
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
