#include <cmath>

#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// Granite 3 (Granite Team 2024): Llama with multipliers of the embeddings, of the scores, of what
// sub-layers add, and a divisor of the logits.
namespace focus {
namespace {

/// 0 where it is what other families have.
double multiplier_of(const ModelConfig& c, double said) {
  return said == 1 / std::sqrt(static_cast<double>(c.head_dim)) ? 0 : said;
}

void read_granite(const JsonFields& json, ModelConfig& c) {
  read_common(json, {}, c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  c.mlp_bias = json.boolean("mlp_bias", false);
  c.embedding_multiplier = json.number("embedding_multiplier", 1);
  c.residual_multiplier = json.number("residual_multiplier", 1);
  c.logits_scaling = json.number("logits_scaling", 1);
  const double attention = json.number("attention_multiplier", 1);
  check(attention > 0, "{}: attention_multiplier must be positive, not {}", json.where(),
        attention);
  c.attention_multiplier = multiplier_of(c, attention);
}

nlohmann::ordered_json write_granite(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("GraniteForCausalLM", c);
  json["attention_bias"] = c.attention_bias;
  json["mlp_bias"] = c.mlp_bias;
  json["embedding_multiplier"] = c.embedding_multiplier;
  json["residual_multiplier"] = c.residual_multiplier;
  json["attention_multiplier"] = c.attention_scale();
  json["logits_scaling"] = c.logits_scaling;
  add_rope(c, json);
  return json;
}

void read_gguf_granite(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  c.mlp_bias = s.tensor("blk.0.ffn_up.bias") != nullptr;
  // llama.cpp takes 0 for none.
  const auto multiplier = [&](const char* key) {
    const double said = s.number(key, 0);
    return said == 0 ? 1 : said;
  };
  c.embedding_multiplier = multiplier("embedding_scale");
  c.residual_multiplier = multiplier("residual_scale");
  c.logits_scaling = multiplier("logit_scale");
  c.attention_multiplier = s.number("attention.scale", 0);
}

void write_gguf_granite(const ModelConfig& c, GgufSettingsWriter& s) {
  s.number("embedding_scale", c.embedding_multiplier);
  s.number("residual_scale", c.residual_multiplier);
  s.number("logit_scale", c.logits_scaling);
  if (c.attention_multiplier > 0) s.number("attention.scale", c.attention_multiplier);
}

}  // namespace

const Family& granite_family() {
  static const Family family = {
      .model_type = "granite",
      .base_prefix = "model.",
      .common = llama_form(),
      .read = read_granite,
      .write = write_granite,
      .rules = common_rules(norms_before()),
      .ignored = {".rotary_emb.inv_freq"},
      .gguf = {.architecture = "granite",
               .rotary_pairs = true,
               .rope_factors = true,
               .read = read_gguf_granite,
               .write = write_gguf_granite},
  };
  return family;
}

}  // namespace focus
