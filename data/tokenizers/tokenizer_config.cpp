#include "data/tokenizers/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "autograd/base/check.h"
#include "data/files/notice.h"

namespace focus {
namespace {

constexpr std::size_t kMostTokens = std::size_t{1} << 20;

std::optional<bool> optional_flag(const JsonView& config, const std::string& key) {
  const JsonView value = config.get(key);
  return value.is_null() ? std::nullopt : std::optional(value.boolean());
}

/// A token is its text, or an object with flags.
const std::string& content_of(const JsonView& token) {
  const JsonView content = token.json().is_object() ? token.at("content") : token;
  if (content.string().empty()) fail("{}: a token is empty", content.where());
  return content.string();
}

std::int32_t id_of_key(const std::string& key, const JsonView& decoder) {
  std::int32_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= kMaxIds)
    fail("{}: {} is not an id from 0 to {}", decoder.where(), json_quoted(key), kMaxIds - 1);
  return id;
}

void read_added_decoder(const JsonView& decoder, TokenizerConfig& config) {
  if (decoder.object().size() > kMostTokens)
    fail("{}: {} tokens are too many", decoder.where(), decoder.object().size());
  for (const auto& [key, value] : decoder.object().items())
    config.added.push_back(
        read_added_token(JsonView(value, fmt::format("{}.{}", decoder.where(), shown(key))),
                         id_of_key(key, decoder)));
}

/// Keys such as "bos_token", and lists of more of them.
void read_special_tokens(const JsonView& json, TokenizerConfig& config) {
  for (const auto& [key, value] : json.object().items()) {
    const JsonView item(value, fmt::format("{}.{}", json.where(), shown(key)));
    const bool token =
        value.is_null() || value.is_string() || (value.is_object() && value.contains("content"));
    if (key.ends_with("_token") && token)
      config.named[key] =
          value.is_null() ? std::nullopt : std::optional<std::string>(content_of(item));
    if (key != "additional_special_tokens" && key != "extra_special_tokens" &&
        key != "model_specific_special_tokens")
      continue;
    if (value.is_array())
      for (std::size_t i = 0; i < item.array_size(); ++i)
        config.extra.push_back(content_of(item.item(i)));
    else if (value.is_object())
      for (const auto& [name, one] : value.items())
        config.extra.push_back(content_of(JsonView(one, item.where() + "." + shown(name))));
  }
}

template <class F>
void with_json(const TokenizerFiles& files, const char* name, const std::string& where, F&& f) {
  const auto file = files.find(name);
  if (file == files.end()) return;
  const std::string place = fmt::format("{}: {}", where, name);
  const nlohmann::json json = parse_strict_json(file->second, place);
  f(JsonView(json, place));
}

void read_added(const JsonView& json, TokenizerConfig& config) {
  const std::vector<std::string> special = config.special_contents();
  for (const auto& [content, id] : json.object().items()) {
    AddedToken token;
    token.id = static_cast<std::int32_t>(
        JsonView(id, fmt::format("{}.{}", json.where(), shown(content))).integer(kMaxIds));
    token.content = content;
    if (content.empty()) fail("{}: a token is empty", json.where());
    token.special = std::ranges::count(special, content) > 0;
    token.normalized = !token.special;
    config.added.push_back(std::move(token));
  }
}

std::vector<std::int32_t> said_end(const std::optional<bool>& said, std::optional<std::int32_t> id,
                                   const std::vector<std::int32_t>& otherwise) {
  if (!said) return otherwise;
  return *said && id ? std::vector{*id} : std::vector<std::int32_t>();
}

}  // namespace

AddedToken read_added_token(const JsonView& item, std::int32_t id) {
  AddedToken token{.id = id, .content = content_of(item)};
  if (!item.json().is_object()) return token;
  token.single_word = item.flag("single_word");
  token.lstrip = item.flag("lstrip");
  token.rstrip = item.flag("rstrip");
  token.special = item.flag("special");
  token.normalized = item.flag("normalized", !token.special);
  return token;
}

std::vector<std::string> TokenizerConfig::special_contents() const {
  constexpr std::array<std::string_view, 7> kFirst = {
      "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
  std::vector<std::string> contents;
  for (const std::string_view key : kFirst)
    if (const auto found = named.find(std::string(key)); found != named.end() && found->second)
      contents.push_back(*found->second);
  for (const auto& [key, content] : named)
    if (content && std::ranges::find(kFirst, key) == kFirst.end()) contents.push_back(*content);
  contents.insert(contents.end(), extra.begin(), extra.end());
  return contents;
}

std::vector<AddedToken> TokenizerConfig::tokens() const {
  std::vector<AddedToken> all = added;
  for (const std::string& content : special_contents())
    all.push_back({.id = -1, .content = content, .special = true});
  return all;
}

std::int32_t TokenizerConfig::place(const AddedToken& token, std::optional<std::int32_t> own,
                                    bool taken, std::int32_t next) const {
  const bool has_id = token.id >= 0;
  const std::int32_t id = own ? *own : has_id && !taken ? token.id : next;
  if (id >= kMaxIds) fail("{}: no id is free for {}", where, json_quoted(token.content));
  if (has_id && id != token.id)
    notice("{}: {} has the id {}, not {} as in its configuration", where,
           json_quoted(token.content), id, token.id);
  else if (!has_id && id == next)
    notice("{}: its configuration names {}, which has no id in any file; it gets id {}", where,
           json_quoted(token.content), id);
  return id;
}

const std::string& tokenizer_file(const TokenizerFiles& files, const std::string& name,
                                  const std::string& where) {
  const auto found = files.find(name);
  if (found == files.end()) fail("{}: the tokenizer needs the file {}", where, name);
  return found->second;
}

const std::map<std::string, std::string>& tokens_of_class(const std::string& tokenizer_class) {
  using Tokens = std::map<std::string, std::string>;
  static const Tokens end = {{"bos_token", "<|endoftext|>"},
                             {"eos_token", "<|endoftext|>"},
                             {"unk_token", "<|endoftext|>"}};
  static const std::map<std::string, Tokens> classes = {
      {"GPT2Tokenizer", end},
      {"GPTNeoXTokenizer", end},
      {"CodeGenTokenizer", end},
      {"Qwen2Tokenizer",
       {{"bos_token", ""}, {"eos_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}}},
      {"LlamaTokenizer", {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}},
      {"GemmaTokenizer",
       {{"bos_token", "<bos>"},
        {"eos_token", "<eos>"},
        {"unk_token", "<unk>"},
        {"pad_token", "<pad>"}}}};
  static const Tokens none;
  const bool fast = tokenizer_class.ends_with("Fast");
  const auto found =
      classes.find(tokenizer_class.substr(0, tokenizer_class.size() - (fast ? 4 : 0)));
  return found == classes.end() ? none : found->second;
}

TokenizerConfig read_tokenizer_config(const TokenizerFiles& files, const std::string& where) {
  TokenizerConfig config;
  config.where = where;
  bool has_decoder = false;
  with_json(files, kTokenizerConfig, where, [&](const JsonView& json) {
    const JsonView name = json.get("tokenizer_class");
    if (!name.is_null()) config.tokenizer_class = name.string();
    config.add_bos_token = optional_flag(json, "add_bos_token");
    config.add_eos_token = optional_flag(json, "add_eos_token");
    config.add_prefix_space = optional_flag(json, "add_prefix_space");
    config.legacy = optional_flag(json, "legacy");
    read_special_tokens(json, config);
    has_decoder = json.object().contains("added_tokens_decoder");
    if (has_decoder) read_added_decoder(json.at("added_tokens_decoder"), config);
  });
  if (!has_decoder) {
    with_json(files, kSpecialTokensMap, where,
              [&](const JsonView& json) { read_special_tokens(json, config); });
    with_json(files, kAddedTokens, where, [&](const JsonView& json) { read_added(json, config); });
  }
  for (const auto& [key, token] : tokens_of_class(config.tokenizer_class))
    if (!config.named.contains(key)) config.of_class[key] = token;
  std::ranges::sort(config.added, {}, &AddedToken::id);
  for (std::size_t i = 1; i < config.added.size(); ++i)
    if (config.added[i].id == config.added[i - 1].id)
      fail("{}: id {} belongs to {} and to {}", where, config.added[i].id,
           json_quoted(config.added[i - 1].content), json_quoted(config.added[i].content));
  return config;
}

std::ptrdiff_t TextEnds::put_before(std::span<const std::int32_t> ids) const {
  const bool begins =
      ids.size() >= prefix.size() && std::ranges::equal(ids.first(prefix.size()), prefix);
  return begins ? 0 : std::ssize(prefix);
}

void TextEnds::put_around(std::vector<std::int32_t>& ids) const {
  const std::ptrdiff_t before = put_before(ids);
  const bool ends =
      ids.size() >= suffix.size() && std::ranges::equal(std::span(ids).last(suffix.size()), suffix);
  if (!ends) ids.insert(ids.end(), suffix.begin(), suffix.end());
  ids.insert(ids.begin(), prefix.begin(), prefix.begin() + before);
}

TextEnds text_ends(const TokenizerConfig& config, const TextEnds& otherwise,
                   std::optional<std::int32_t> bos_id, std::optional<std::int32_t> eos_id) {
  return {.prefix = said_end(config.add_bos_token, bos_id, otherwise.prefix),
          .suffix = said_end(config.add_eos_token, eos_id, otherwise.suffix)};
}

}  // namespace focus
