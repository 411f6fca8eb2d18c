#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_settings.h"

// Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024): RMSNorm before each sub-layer,
// rotary positions, SwiGLU, grouped-query attention.
namespace focus {
namespace {

void read_llama(const JsonFields& json, ModelConfig& c) {
  read_common(json, {}, c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  c.mlp_bias = json.boolean("mlp_bias", false);
  check(json.integer("pretraining_tp", 1) == 1, "{}: pretraining_tp other than 1 is not supported",
        json.where());
}

nlohmann::ordered_json write_llama(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("LlamaForCausalLM", c);
  json["attention_bias"] = c.attention_bias;
  json["mlp_bias"] = c.mlp_bias;
  add_rope(c, json);
  return json;
}

/// Settings of a GGUF file that are this family's own.
void read_gguf_llama(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  c.mlp_bias = s.tensor("blk.0.ffn_up.bias") != nullptr;
}

}  // namespace

const Family& llama_family() {
  static const Family family = {
      .model_type = "llama",
      .base_prefix = "model.",
      .common = llama_form(),
      .read = read_llama,
      .write = write_llama,
      .rules = common_rules(norms_before()),
      .ignored = {".rotary_emb.inv_freq"},
      .gguf = {.architecture = "llama",
               .rotary_pairs = true,
               .rope_factors = true,
               .read = read_gguf_llama},
  };
  return family;
}

}  // namespace focus
