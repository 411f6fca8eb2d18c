#include "data/gguf/gguf_vocabulary.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"
#include "data/tokenizers/pattern.h"
#include "data/tokenizers/tokenizer_config.h"

namespace focus {
namespace {

using Json = nlohmann::json;

// llama.cpp's default: punctuation, GPT-2's but for its last branch, numbers, digits in threes.
constexpr const char* kDefaultExpressions[] = {
    R"([\p{P}$+<=>^~|]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
    R"(\p{N}+)",
    R"([0-9][0-9][0-9])",
};

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json split(const char* expression) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", expression}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json sequence(Json steps) { return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}; }

Json split_by(const char* expression) {
  return sequence(Json::array({split(expression), byte_level(false)}));
}

// DeepSeek's: line ends, letters, punctuation, Chinese and Korean. The letters of the first are
// those of scripts with capitals, which its file lists one by one.
constexpr const char* kDeepseekExpressions[] = {
    R"([\r\n])", R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
    R"(\s+$)",   R"([一-龥ࠀ-一가-퟿]+)", R"(\p{N}+)"};
constexpr const char* kDeepseekCoderExpressions[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                                     R"([一-龥ࠀ-一가-퟿]+)", R"(\p{N})"};

// DeepSeek-V3's: digits in threes, Chinese and Japanese, all else.
constexpr const char* kDeepseek3Expressions[] = {
    R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};
// SuperBPE's first step: numbers, their digits in threes from the last one on; words stay together.
constexpr const char* kSuperBpeExpressions[] = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};
// Qwen2's, but for line ends behind punctuation.
constexpr const char* kSeedCoderExpression =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|"
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

Json steps_of(std::span<const char* const> expressions) {
  Json steps = Json::array();
  for (const char* expression : expressions) steps.push_back(split(expression));
  steps.push_back(byte_level(false));
  return sequence(std::move(steps));
}

std::vector<GgufPreTokenizer> make_table() {
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  return {
      {.names = {"gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "mellum", "a.x-4.0",
                 "exaone4", "granite-docling"},
       .steps = byte_level(true)},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "minerva-7b"},
       .steps = sequence(Json::array({digits, byte_level(true)}))},
      {.names = {"llama-bpe", "llama3", "llama-v3", "pixtral", "lfm2", "falcon3", "falcon-h1",
                 "midm-2.0"},
       .steps = split_by(kLlama3Expression),
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"qwen2"}, .steps = split_by(kQwen2Expression), .nfc = true},
      {.names = {"deepseek-r1-qwen", "stablelm2", "megrez", "kormo"},
       .steps = split_by(kQwen2Expression)},
      {.names = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, .steps = split_by(kLlama3Expression)},
      {.names = {"gpt-4o", "llama4"}, .steps = split_by(kGpt4oExpression)},
      {.names = {"tekken"},
       .steps = split_by(kTekkenExpression),
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"deepseek-llm"}, .steps = steps_of(kDeepseekExpressions)},
      {.names = {"deepseek-coder"}, .steps = steps_of(kDeepseekCoderExpressions)},
      {.names = {"deepseek-v3", "hunyuan-dense"}, .steps = steps_of(kDeepseek3Expressions)},
      {.names = {"superbpe"}, .steps = steps_of(kSuperBpeExpressions)},
      {.names = {"seed-coder"}, .steps = split_by(kSeedCoderExpression)},
      {.names = {"default"}, .steps = steps_of(kDefaultExpressions)},
  };
}

std::string ggml_key(const char* name) { return fmt::format("tokenizer.ggml.{}", name); }

void check_tokens(const GgufVocabulary& v) {
  std::unordered_set<std::string_view> seen;
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    const std::string& token = v.tokens[id];
    if (!is_valid_utf8(token))
      fail("{}: tokenizer.ggml.tokens: token {} is not UTF-8: {}", v.where, id, json_quoted(token));
    if (!token.empty() && !seen.insert(token).second)
      fail("{}: tokenizer.ggml.tokens: token {}, {}, appears twice", v.where, id,
           json_quoted(token));
  }
}

std::vector<TokenType> read_types(const GgufMetadata& metadata, const GgufVocabulary& v) {
  const auto numbers = metadata.integers(ggml_key("token_type"));
  if (!numbers) return std::vector<TokenType>(v.tokens.size(), TokenType::normal);
  if (numbers->size() != v.tokens.size())
    fail("{}: tokenizer.ggml.token_type has {} values for {} tokens", v.where, numbers->size(),
         v.tokens.size());
  std::vector<TokenType> types;
  types.reserve(numbers->size());
  for (std::size_t id = 0; id < numbers->size(); ++id) {
    const std::int64_t number = (*numbers)[id];
    if (number < 1 || number > 6)
      fail("{}: tokenizer.ggml.token_type of token {} is {}, not one of 1 to 6", v.where, id,
           number);
    types.push_back(static_cast<TokenType>(number));
  }
  return types;
}

std::optional<std::int32_t> read_id(const GgufMetadata& metadata, const char* name,
                                    const GgufVocabulary& v) {
  const std::string key = ggml_key(name);
  const auto id = metadata.integer(key);
  if (!id) return std::nullopt;
  const bool there =
      *id >= 0 && *id < static_cast<std::int64_t>(v.tokens.size()) && !v.tokens[*id].empty();
  if (there) return static_cast<std::int32_t>(*id);
  // As llama.cpp: fine-tuned models name padding that they never got a row for.
  spdlog::warn("{}: {} is {}, which is not one of the {} tokens: ignored", v.where, key, *id,
               v.tokens.size());
  return std::nullopt;
}

/// The default template, or all in transformers' list where there are more.
nlohmann::ordered_json read_chat_templates(const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  auto list = nlohmann::ordered_json::array();
  const auto add = [&](const std::string& name, const std::string& text) {
    if (!is_valid_utf8(text)) fail("{}: {} is not UTF-8", metadata.where(), kKey);
    list.push_back({{"name", name}, {"template", text}});
  };
  if (const auto text = metadata.text(kKey)) add("default", *text);
  for (const std::string& key : metadata.keys()) {
    const std::string prefix = fmt::format("{}.", kKey);
    if (key.starts_with(prefix) && is_valid_utf8(key))
      add(key.substr(prefix.size()), metadata.text(key).value());
  }
  if (list.empty()) return nullptr;
  if (list.size() == 1 && metadata.has(kKey)) return list[0]["template"];
  return list;
}

}  // namespace

std::span<const GgufPreTokenizer> gguf_pre_tokenizers() {
  static const std::vector<GgufPreTokenizer> table = make_table();
  return table;
}

const GgufPreTokenizer& gguf_pre_tokenizer(const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (const GgufPreTokenizer& each : gguf_pre_tokenizers()) {
    if (std::ranges::find(each.names, name) != each.names.end()) return each;
    known.insert(known.end(), each.names.begin(), each.names.end());
  }
  fail(
      "{}: tokenizer.ggml.pre {} is not supported ({} are); name the model's tokenizer.json with "
      "--tokenizer FILE",
      where, json_quoted(name), fmt::join(known, ", "));
}

GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata) {
  GgufVocabulary v;
  v.where = metadata.where();
  auto tokens = metadata.texts(ggml_key("tokens"));
  if (!tokens || tokens->empty())
    fail("{}: its tokenizer has no tokenizer.ggml.tokens; name a tokenizer with --tokenizer FILE",
         v.where);
  v.tokens = *std::move(tokens);
  if (v.tokens.size() >= static_cast<std::size_t>(kMaxIds))
    fail("{}: {} tokens, more than the {} that are supported", v.where, v.tokens.size(), kMaxIds);
  check_tokens(v);
  v.types = read_types(metadata, v);
  v.bos_id = read_id(metadata, "bos_token_id", v);
  v.eos_id = read_id(metadata, "eos_token_id", v);
  v.unk_id = read_id(metadata, "unknown_token_id", v);
  v.pad_id = read_id(metadata, "padding_token_id", v);
  v.eot_id = read_id(metadata, "eot_token_id", v);
  v.add_bos = metadata.flag(ggml_key("add_bos_token"));
  v.add_eos = metadata.flag(ggml_key("add_eos_token"));
  for (const auto id : {v.bos_id, v.eos_id, v.pad_id, v.eot_id}) {
    if (id) v.type(*id) = TokenType::control;
  }
  return v;
}

std::string gguf_tokenizer_config(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                  const std::string& tokenizer_class, nlohmann::ordered_json more) {
  nlohmann::ordered_json json = {{"tokenizer_class", tokenizer_class}};
  json.update(more);
  const auto name = [&](const char* key, std::optional<std::int32_t> id) {
    if (id) json[key] = vocabulary.text(*id);
  };
  name("bos_token", vocabulary.bos_id);
  name("eos_token", vocabulary.eos_id);
  name("unk_token", vocabulary.unk_id);
  name("pad_token", vocabulary.pad_id);
  json["clean_up_tokenization_spaces"] = false;
  nlohmann::ordered_json added = nlohmann::ordered_json::object();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = vocabulary.types[id];
    if (type != TokenType::control && type != TokenType::user_defined &&
        vocabulary.unk_id != static_cast<std::int32_t>(id))
      continue;
    added[std::to_string(id)] = {{"content", vocabulary.tokens[id]},
                                 {"lstrip", false},
                                 {"normalized", false},
                                 {"rstrip", false},
                                 {"single_word", false},
                                 {"special", type != TokenType::user_defined}};
  }
  json["added_tokens_decoder"] = std::move(added);
  const nlohmann::ordered_json chat = read_chat_templates(metadata);
  if (!chat.is_null()) json["chat_template"] = chat;
  return json.dump(2) + "\n";
}

}  // namespace focus
