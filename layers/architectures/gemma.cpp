#include <cmath>

#include "layers/family.h"
#include "layers/gguf_settings.h"

// Gemma 2 (Gemma Team 2024): local and global layers alternate, soft-capped scores and logits,
// scaled embeddings, RMSNorm before and after each sub-layer with weights stored less 1, GeGLU.
// Gemma 3 (Gemma Team 2025), text only: RMSNorm of each head's q and k instead of soft-caps, five
// local layers to a global one, and separate rotary embeddings in the local layers.
namespace focus {
namespace {

/// A soft-cap; null: none.
double read_softcap(const JsonFields& json, const char* key, double otherwise) {
  if (!json.has(key)) return json.mentions(key) ? 0 : otherwise;
  const double cap = json.number(key);
  check(cap > 0, "{}: {} must be positive or null, not {}", json.where(), key, cap);
  return cap;
}

void read_gemma(const JsonFields& json, ModelConfig& c) {
  c.query_pre_attn_scalar = json.number("query_pre_attn_scalar", 256);
  check(c.query_pre_attn_scalar > 0, "{}: query_pre_attn_scalar must be positive, not {}",
        json.where(), c.query_pre_attn_scalar);
  if (c.query_pre_attn_scalar == static_cast<double>(c.head_dim)) c.query_pre_attn_scalar = 0;
  c.final_logit_softcapping =
      read_softcap(json, "final_logit_softcapping", c.final_logit_softcapping);
  if (c.attn_logit_softcapping > 0)
    c.attn_logit_softcapping =
        read_softcap(json, "attn_logit_softcapping", c.attn_logit_softcapping);
  else
    json.report_ignored("attn_logit_softcapping", 0);
}

void write_gemma(const ModelConfig& c, nlohmann::ordered_json& json) {
  if (c.activation == Activation::gelu_tanh) json["hidden_activation"] = "gelu_pytorch_tanh";
  const double scalar = c.query_pre_attn_scalar;
  if (scalar == 0)
    json["query_pre_attn_scalar"] = c.head_dim;
  else if (scalar == std::floor(scalar))  // transformers takes it as an integer only
    json["query_pre_attn_scalar"] = static_cast<Index>(scalar);
  else
    json["query_pre_attn_scalar"] = scalar;
  const auto write_softcap = [&](const char* key, double cap) {
    json[key] = nullptr;
    if (cap > 0) json[key] = cap;
  };
  write_softcap("attn_logit_softcapping", c.attn_logit_softcapping);
  write_softcap("final_logit_softcapping", c.final_logit_softcapping);
}

/// GGUF files have no key of query_pre_attn_scalar: it is head_dim (0), but in the models of 27
/// billion parameters the width over the heads.
double gguf_query_scalar(const ModelConfig& c) {
  if (c.num_hidden_layers != (c.model_type == "gemma2" ? 46 : 62)) return 0;
  return static_cast<double>(c.hidden_size) / static_cast<double>(c.num_attention_heads);
}

void read_gguf_gemma(const GgufSettings& s, ModelConfig& c) {
  if (c.attn_logit_softcapping > 0) {
    c.tie_word_embeddings = true;
    c.attn_logit_softcapping = s.number("attn_logit_softcapping", c.attn_logit_softcapping);
  }
  c.final_logit_softcapping = s.number("final_logit_softcapping", c.final_logit_softcapping);
  c.query_pre_attn_scalar = gguf_query_scalar(c);
}

void write_gguf_gemma(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.model_type == "gemma2") {
    if (!c.tie_word_embeddings) s.fail_unsupported("its output head is not tied to the embedding");
    if (c.attn_logit_softcapping == 0 || c.final_logit_softcapping == 0)
      s.fail_unsupported("it has no soft-cap of scores or logits");
    s.number("attn_logit_softcapping", c.attn_logit_softcapping);
  }
  if (c.final_logit_softcapping > 0) s.number("final_logit_softcapping", c.final_logit_softcapping);
  const auto scalar_of = [&](double x) { return x == 0 ? static_cast<double>(c.head_dim) : x; };
  if (scalar_of(gguf_query_scalar(c)) != scalar_of(c.query_pre_attn_scalar))
    s.fail_unsupported(fmt::format("its query_pre_attn_scalar is {}", c.query_pre_attn_scalar));
}

}  // namespace

Family gemma2_family() {
  return {.model_type = "gemma2",
          .architecture = "Gemma2ForCausalLM",
          .common = {.norm_weight_offset = 1,
                     .norm_after = true,
                     .activation = Activation::gelu_tanh,
                     .scaled_embeddings = true,
                     .attn_logit_softcapping = 50,
                     .final_logit_softcapping = 30,
                     .tie_word_embeddings = true},
          .json = {.num_key_value_heads = 4,
                   .head_dim = 256,
                   .max_position_embeddings = 8192,
                   .activation_key = "hidden_activation",
                   .attention_bias = true},
          .windows = {.layers = WindowForm::Layers::periodic, .width = 4096, .period = 2},
          .read = read_gemma,
          .write = write_gemma,
          .gguf = {.architecture = "gemma2",
                   .window = 4096,
                   .attends_in_windows = true,
                   .read = read_gguf_gemma,
                   .write = write_gguf_gemma}};
}

Family gemma3_family() {
  Family family = gemma2_family();
  family.model_type = "gemma3_text";
  family.architecture = "Gemma3ForCausalLM";
  family.common.qk_norm = QkNorm::per_head;
  family.common.attn_logit_softcapping = family.common.final_logit_softcapping = 0;
  family.common.rope.theta = 1e6;
  family.common.local_rope = RopeConfig{.theta = 1e4};
  family.json.max_position_embeddings = 131072;
  family.rope = {.by_layer = true, .local_theta = "rope_local_base_freq"};
  family.windows.period = 6;
  family.windows.pattern_key = true;
  family.gguf.architecture = "gemma3";
  family.gguf.window = 0;
  return family;
}

}  // namespace focus
