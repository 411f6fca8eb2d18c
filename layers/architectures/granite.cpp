#include <cmath>

#include "layers/family.h"
#include "layers/gguf_settings.h"

// Granite 3 (Granite Team 2024): Llama with multipliers of the embeddings, of the scores, of what
// sub-layers add, and a divisor of the logits.
namespace focus {
namespace {

void read_granite(const JsonFields& json, ModelConfig& c) {
  c.embedding_multiplier = json.number("embedding_multiplier", 1);
  c.residual_multiplier = json.number("residual_multiplier", 1);
  c.logits_scaling = json.number("logits_scaling", 1);
  const double attention = json.number("attention_multiplier", 1);
  check(attention > 0, "{}: attention_multiplier must be positive, not {}", json.where(),
        attention);
  const bool usual = attention == 1 / std::sqrt(static_cast<double>(c.head_dim));
  c.attention_multiplier = usual ? 0 : attention;
}

void write_granite(const ModelConfig& c, nlohmann::ordered_json& json) {
  json["embedding_multiplier"] = c.embedding_multiplier;
  json["residual_multiplier"] = c.residual_multiplier;
  json["attention_multiplier"] = c.attention_scale();
  json["logits_scaling"] = c.logits_scaling;
}

void read_gguf_granite(const GgufSettings& s, ModelConfig& c) {
  // llama.cpp takes 0 for none.
  const auto multiplier = [&](const char* key) {
    const double given = s.number(key, 0);
    return given == 0 ? 1 : given;
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

Family granite_family() {
  return {.model_type = "granite",
          .architecture = "GraniteForCausalLM",
          .json = {.attention_bias = true, .mlp_bias = true},
          .read = read_granite,
          .write = write_granite,
          .gguf = {.architecture = "granite",
                   .rotary_pairs = true,
                   .rope_factors = true,
                   .read = read_gguf_granite,
                   .write = write_gguf_granite}};
}

}  // namespace focus
