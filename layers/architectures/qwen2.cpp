#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on q, k and v.
namespace focus {
namespace {

/// What its models are, whatever their size.
ModelConfig qwen2_form() {
  ModelConfig c;
  c.attention_bias = true;
  return c;
}

void read_qwen2(const JsonFields& json, ModelConfig& c) {
  read_common(json, {.num_key_value_heads = 32, .max_position_embeddings = 32768}, c);
  read_upper_windows(json, c);
}

nlohmann::ordered_json write_qwen2(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("Qwen2ForCausalLM", c);
  write_upper_windows(c, json);
  add_rope(c, json);
  return json;
}

}  // namespace

const Family& qwen2_family() {
  static const Family family = {
      .model_type = "qwen2",
      .base_prefix = "model.",
      .common = qwen2_form(),
      .read = read_qwen2,
      .write = write_qwen2,
      .rules = common_rules(norms_before()),
      .ignored = {".rotary_emb.inv_freq"},
      .gguf = {.architecture = "qwen2",
               .read = read_gguf_upper_windows,
               .write = write_gguf_upper_windows},
  };
  return family;
}

}  // namespace focus
