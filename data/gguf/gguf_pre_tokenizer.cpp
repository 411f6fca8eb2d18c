#include "data/gguf/gguf_pre_tokenizer.h"

#include <algorithm>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

using Json = nlohmann::json;

constexpr const char* kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
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

Json default_steps() {
  Json steps = Json::array();
  for (const char* expression : kDefaultExpressions) steps.push_back(split(expression));
  steps.push_back(byte_level(false));
  return sequence(std::move(steps));
}

std::vector<GgufPreTokenizer> make_table() {
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  return {
      {.names = {"gpt-2", "phi-2", "olmo", "mpt", "jais"}, .steps = byte_level(true)},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell"},
       .steps = sequence(Json::array({digits, byte_level(true)}))},
      {.names = {"llama-bpe", "llama3", "llama-v3", "pixtral", "lfm2", "falcon3"},
       .steps = split_by(kLlama3Expression),
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"qwen2"}, .steps = split_by(kQwen2Expression), .nfc = true},
      {.names = {"deepseek-r1-qwen", "stablelm2", "megrez"}, .steps = split_by(kQwen2Expression)},
      {.names = {"dbrx", "smaug-bpe"}, .steps = split_by(kLlama3Expression)},
      {.names = {"default"}, .steps = default_steps()},
  };
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

}  // namespace focus
