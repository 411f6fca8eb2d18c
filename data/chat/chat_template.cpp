#include "data/chat/chat_template.h"

#include <algorithm>
#include <array>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"
#include "data/tokenizers/tokenizer_config.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kMapFile = "special_tokens_map.json";

/// One of the files as an object; null where it is missing.
nlohmann::json parse_file(const ChatFiles& files, const char* name, const std::string& where) {
  const auto found = files.find(name);
  if (found == files.end()) return nullptr;
  const std::string place = fmt::format("{}/{}", where, name);
  nlohmann::json json = parse_strict_json(found->second, place);
  JsonView(json, place).object();
  return json;
}

/// A message as transformers hands it to a template.
Json prepared(const Json& message) {
  static constexpr std::array kReasoning = {"reasoning_content", "thinking", "reasoning"};
  Json kept = Json::object();
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) kept[key] = value;
  const auto name =
      std::ranges::find_if(kReasoning, [&](const char* key) { return kept.contains(key); });
  if (name == kReasoning.end()) return kept;
  const Json reasoning = kept.at(*name);
  Json result = Json::object();
  result["thinking"] = reasoning;
  for (const auto& [key, value] : kept.items()) result[key] = value;
  result["reasoning_content"] = reasoning;
  return result;
}

std::string names_of(const JsonView& templates) {
  std::string names;
  for (std::size_t i = 0; i < templates.array_size(); ++i)
    names += (i > 0 ? ", " : "") + shown(templates.item(i).at("name").string());
  return names;
}

ChatTemplate named_template(const JsonView& templates, const std::string& name,
                            const std::string& where) {
  const std::string wanted = name.empty() ? "default" : name;
  for (std::size_t i = 0; i < templates.array_size(); ++i) {
    const JsonView item = templates.item(i);
    if (item.at("name").string() == wanted)
      return ChatTemplate(item.at("template").string(),
                          fmt::format("{}: chat template '{}'", where, shown(wanted)));
  }
  fail("{}: no chat template is named '{}'; --chat-template takes one of: {}", where, shown(wanted),
       names_of(templates));
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, std::string where,
                           const jinja::Limits& limits)
    : source_(source), template_(source, where, limits), where_(std::move(where)) {}

void ChatVariables::take(const Json& line, const std::string& where) {
  for (const auto& [key, to] : {std::pair{"tools", &tools}, {"documents", &documents}}) {
    if (!line.contains(key)) continue;
    const Json& value = line[key];
    *to = value.is_string() ? parse_ordered_json(value.get<std::string>(), where + ": " + key)
                            : value;
    if (!to->is_array()) fail("{}: {} is {}, not a list", where, json_quoted(key), to->type_name());
  }
  if (!line.contains("chat_template_kwargs")) return;
  const Json& more = line["chat_template_kwargs"];
  if (!more.is_object())
    fail("{}: \"chat_template_kwargs\" is {}, not an object", where, more.type_name());
  for (const auto& [key, value] : more.items()) others[key] = value;
}

void ChatVariables::take_word(const std::string& word, const std::string& where) {
  const std::size_t equals = word.find('=');
  if (equals == 0 || equals == std::string::npos)
    fail("{}: expected KEY=VALUE, such as enable_thinking=false, got {}", where, json_quoted(word));
  const std::string value = word.substr(equals + 1);
  others[word.substr(0, equals)] =
      Json::accept(value) ? parse_ordered_json(value, where) : Json(replace_invalid_utf8(value));
}

std::string ChatTemplate::render(const Json& messages, const ChatVariables& variables,
                                 jinja::TextRanges* generated) const {
  if (!messages.is_array() || messages.empty()) fail("{}: there are no messages to render", where_);
  Json all = Json::object();
  for (const auto& [name, text] : variables.special_tokens) all[name] = text;
  for (const auto& [name, value] : variables.others.items()) all[name] = value;
  Json list = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object())
      fail("{}: a message is {}, not an object", where_, message.type_name());
    list.push_back(prepared(message));
  }
  all["messages"] = std::move(list);
  all["tools"] = variables.tools;
  all["documents"] = variables.documents;
  all["add_generation_prompt"] = variables.add_generation_prompt;
  return template_.render(all, variables.now, generated);
}

bool has_chat_template(const ChatFiles& files, const std::string& where) {
  if (files.contains(kChatTemplate)) return true;
  const nlohmann::json config = parse_file(files, kConfigFile, where);
  return config.is_object() && !config.value("chat_template", nlohmann::json()).is_null();
}

ChatTemplate find_chat_template(const ChatFiles& files, const std::string& name,
                                const std::string& where) {
  if (const auto file = files.find(kChatTemplate); file != files.end() && name.empty())
    return ChatTemplate(file->second, fmt::format("{}/{}", where, kChatTemplate));
  const nlohmann::json config = parse_file(files, kConfigFile, where);
  const std::string place = fmt::format("{}/{}", where, kConfigFile);
  if (!config.is_object() || config.value("chat_template", nlohmann::json()).is_null()) {
    if (!name.empty() && files.contains(kChatTemplate))
      fail("{}: it has one chat template, none by name; leave out --chat-template {}", where,
           shown(name));
    fail(
        "{}: it has no chat template (chat_template.jinja, or \"chat_template\" in "
        "tokenizer_config.json); give one with --chat-template FILE.jinja, in a config with "
        "data.chat_template_path, or a prompt without --chat",
        where);
  }
  const JsonView templates(config["chat_template"], place + ": chat_template");
  if (templates.json().is_array()) return named_template(templates, name, place);
  if (!name.empty())
    fail("{}: it has one chat template, none by name; leave out --chat-template {}", place,
         shown(name));
  return ChatTemplate(templates.string(), place + ": chat_template");
}

std::map<std::string, std::string> chat_special_tokens(const ChatFiles& files,
                                                       const std::string& where) {
  std::map<std::string, std::string> tokens;
  const auto put = [&](const std::string& name, const nlohmann::json& value) {
    const nlohmann::json& text =
        value.is_object() && value.contains("content") ? value["content"] : value;
    if (text.is_string()) tokens[name] = text.get<std::string>();
  };
  const auto read = [&](const nlohmann::json& json) {
    if (!json.is_object()) return;
    for (const char* more : {"extra_special_tokens", "model_specific_special_tokens"})
      if (const auto named = json.find(more); named != json.end() && named->is_object())
        for (const auto& [name, text] : named->items()) put(name, text);
    for (const auto& [key, value] : json.items())
      if (key.ends_with("_token")) put(key, value);
  };
  const nlohmann::json config = parse_file(files, kConfigFile, where);
  read(config);
  // As transformers: the older file counts where the newer one does not list its tokens.
  if (!config.is_object() || !config.contains("added_tokens_decoder"))
    read(parse_file(files, kMapFile, where));
  if (!config.is_object()) return tokens;
  for (const auto& [name, text] : tokens_of_class(config.value("tokenizer_class", "")))
    if (!text.empty() && !config.contains(name)) tokens.emplace(name, text);
  return tokens;
}

Json parse_tools(const std::string& text, const std::string& where) {
  Json tools = parse_ordered_json(text, where);
  if (!tools.is_array()) fail("{}: expected a list of tools, got {}", where, tools.type_name());
  return tools;
}

Json parse_messages(const std::string& text, const std::string& where) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) fail("{}: it holds no messages", where);
  Json messages = Json::array();
  if (text[first] == '[') {
    messages = parse_ordered_json(text, where);
  } else {
    for_each_row(text, [&](std::string_view row, std::size_t line) {
      messages.push_back(parse_ordered_json(row, fmt::format("{}: line {}", where, line)));
    });
  }
  for (const Json& message : messages)
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      fail("{}: each message is an object with \"role\" and \"content\"; one is {}", where,
           shown(json_text(message)));
  if (messages.empty()) fail("{}: it holds no messages", where);
  return messages;
}

}  // namespace focus
