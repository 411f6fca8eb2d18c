#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "data/gguf/gguf.h"
#include "data/gguf/gguf_tokenizer.h"
#include "focus/adapters/lora/lora_files.h"
#include "focus/models/model_format.h"
#include "layers/gguf_settings.h"

namespace focus {
namespace {

/// Tokens by which llama.cpp ends a generation whatever the file says of them.
constexpr std::array<std::string_view, 18> kEnds = {
    "<|eot_id|>", "<|im_end|>",    "<|end|>",           "<|return|>", "<|call|>",
    "<|flush|>",  "<|calls|>",     "<end_of_turn>",     "</s>",       "<|eom_id|>",
    "<EOT>",      "_<EOT>",        "<|end_of_text|>",   "[EOT]",      "[EOS]",
    "<eos>",      "<|endoftext|>", "<end_of_utterance>"};

/// The generation_config.json: BOS, padding, and every id that ends a generation in llama.cpp, the
/// file's EOS first; ids from `vocab_size` on are no tokens. Empty if the file names none.
std::string generation_config_of(const GgufMetadata& metadata, Index vocab_size) {
  if (metadata.text("tokenizer.ggml.model").value_or("none") == "none") return "";
  const auto id = [&](const char* name) -> std::optional<std::int64_t> {
    const auto value = metadata.integer(std::string("tokenizer.ggml.") + name);
    return value && *value >= 0 && *value < vocab_size ? value : std::nullopt;
  };
  std::vector<std::int64_t> ends;
  const auto add = [&](std::optional<std::int64_t> end) {
    if (end && std::ranges::find(ends, *end) == ends.end()) ends.push_back(*end);
  };
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) add(id(name));
  std::int64_t number = 0;
  for (const std::string& token :
       metadata.texts("tokenizer.ggml.tokens").value_or(std::vector<std::string>())) {
    if (number < vocab_size && std::ranges::find(kEnds, token) != kEnds.end()) add(number);
    ++number;
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (const auto bos = id("bos_token_id")) json["bos_token_id"] = *bos;
  if (ends.size() == 1) json["eos_token_id"] = ends.front();
  if (ends.size() > 1) json["eos_token_id"] = ends;
  if (const auto padding = id("padding_token_id")) json["pad_token_id"] = *padding;
  return json.empty() ? "" : json.dump(2) + "\n";
}

ModelFiles open_gguf(const std::filesystem::path& path, bool own_tokenizer) {
  ModelFiles files;
  auto source = std::make_unique<GgufSource>(path);
  files.config = read_gguf_config(*source);
  for (const auto& part : source->files()) files.identity.push_back(identity_of(part));
  if (own_tokenizer) files.tokenizer = tokenizer_of(source->metadata());
  const std::string generation = generation_config_of(source->metadata(), files.config.vocab_size);
  if (!generation.empty()) files.side_files[kGenerationConfig] = generation;
  files.weights = std::move(source);
  return files;
}

std::vector<SavedAdapter> open_gguf_adapters(const std::filesystem::path& path,
                                             const ModelConfig&) {
  return {saved_lora(path, read_gguf_adapter)};
}

}  // namespace

ModelFormat gguf_format() {
  return {.is = is_gguf, .open = open_gguf, .open_adapters = open_gguf_adapters};
}

}  // namespace focus
