#include "data/chat/chat_template.h"

#include <algorithm>
#include <array>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kMapFile = "special_tokens_map.json";

/// Strict JSON in the order of its file, which is the order in which a template prints it.
Json parse_ordered(std::string_view text, const std::string& where) {
  parse_strict_json(text, where);
  return Json::parse(text);
}

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
    : template_(source, where, limits), where_(std::move(where)) {}

std::string ChatTemplate::render(const Json& messages, const ChatVariables& variables) const {
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
  return template_.render(all, variables.now);
}

ChatTemplate find_chat_template(const ChatFiles& files, const std::string& name,
                                const std::string& where) {
  if (const auto file = files.find(kTemplateFile); file != files.end() && name.empty())
    return ChatTemplate(file->second, fmt::format("{}/{}", where, kTemplateFile));
  const nlohmann::json config = parse_file(files, kConfigFile, where);
  const std::string place = fmt::format("{}/{}", where, kConfigFile);
  const bool has =
      config.is_object() && config.contains("chat_template") && !config["chat_template"].is_null();
  if (!has) {
    if (!name.empty() && files.contains(kTemplateFile))
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
  const auto read = [&](const nlohmann::json& json) {
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.items()) {
      if (!key.ends_with("_token")) continue;
      const nlohmann::json& text =
          value.is_object() && value.contains("content") ? value["content"] : value;
      if (text.is_string()) tokens[key] = text.get<std::string>();
    }
  };
  const nlohmann::json config = parse_file(files, kConfigFile, where);
  read(config);
  // As transformers: the older file counts where the newer one does not list its tokens.
  if (!config.is_object() || !config.contains("added_tokens_decoder"))
    read(parse_file(files, kMapFile, where));
  return tokens;
}

Json parse_messages(const std::string& text, const std::string& where) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) fail("{}: it holds no messages", where);
  Json messages = Json::array();
  if (text[first] == '[') {
    messages = parse_ordered(text, where);
  } else {
    for_each_row(text, [&](std::string_view row, std::size_t line) {
      messages.push_back(parse_ordered(row, fmt::format("{}: line {}", where, line)));
    });
  }
  for (const Json& message : messages)
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      fail("{}: each message is an object with \"role\" and \"content\"; one is {}", where,
           shown(message.dump(-1, ' ', false, Json::error_handler_t::replace)));
  if (messages.empty()) fail("{}: it holds no messages", where);
  return messages;
}

}  // namespace focus
