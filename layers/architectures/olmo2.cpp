#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_settings.h"

// OLMo 2 (OLMo et al. 2024): Llama with RMSNorm after the sub-layers instead of before them, and of
// all heads' q and k at once.
namespace focus {
namespace {

/// What its models are, whatever their size.
ModelConfig olmo2_form() {
  ModelConfig c;
  c.norm_before = false;
  c.norm_after = true;
  c.qk_norm = QkNorm::full_width;
  return c;
}

void read_olmo2(const JsonFields& json, ModelConfig& c) {
  read_common(json, {.rms_norm_eps = 1e-5}, c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
}

nlohmann::ordered_json write_olmo2(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("Olmo2ForCausalLM", c);
  json["attention_bias"] = c.attention_bias;
  add_rope(c, json);
  return json;
}

void read_gguf_olmo2(const GgufSettings& s, ModelConfig& c) { read_gguf_attention_biases(s, c); }

}  // namespace

const Family& olmo2_family() {
  static const Family family = {
      .model_type = "olmo2",
      .base_prefix = "model.",
      .common = olmo2_form(),
      .read = read_olmo2,
      .write = write_olmo2,
      .rules = common_rules(with_qk_norms(norms_after())),
      .ignored = {".rotary_emb.inv_freq"},
      .gguf = {.architecture = "olmo2", .read = read_gguf_olmo2},
  };
  return family;
}

}  // namespace focus
