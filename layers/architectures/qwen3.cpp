#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// Qwen3 (Yang et al. 2025): Llama with RMSNorm of each head's q and k, and a head_dim of its own.
namespace focus {
namespace {

/// What its models are, whatever their size.
ModelConfig qwen3_form() {
  ModelConfig c;
  c.qk_norm = QkNorm::per_head;
  return c;
}

void read_qwen3(const JsonFields& json, ModelConfig& c) {
  read_common(json, {.num_key_value_heads = 32, .head_dim = 128, .max_position_embeddings = 32768},
              c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  read_upper_windows(json, c);
}

nlohmann::ordered_json write_qwen3(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("Qwen3ForCausalLM", c);
  json["attention_bias"] = c.attention_bias;
  write_upper_windows(c, json);
  add_rope(c, json);
  return json;
}

void read_gguf_qwen3(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  read_gguf_upper_windows(s, c);
}

}  // namespace

const Family& qwen3_family() {
  static const Family family = {
      .model_type = "qwen3",
      .base_prefix = "model.",
      .common = qwen3_form(),
      .read = read_qwen3,
      .write = write_qwen3,
      .rules = common_rules(with_qk_norms(norms_before())),
      .ignored = {".rotary_emb.inv_freq"},
      .gguf = {.architecture = "qwen3", .read = read_gguf_qwen3, .write = write_gguf_upper_windows},
  };
  return family;
}

}  // namespace focus
