#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// Gemma 2 (Gemma Team 2024): local and global layers in turn, soft-capped scores and logits, scaled
// embeddings, RMSNorm before and after each sub-layer with weights stored less 1, GeGLU.
namespace focus {
namespace {

/// What its models are, whatever their size.
ModelConfig gemma2_form() {
  ModelConfig c;
  c.norm_weight_offset = 1;
  c.norm_after = true;
  c.activation = Activation::gelu_tanh;
  c.scaled_embeddings = true;
  c.attn_logit_softcapping = 50;
  c.final_logit_softcapping = 30;
  c.tie_word_embeddings = true;
  return c;
}

constexpr Index kGemma2Period = 2;  // of local and global layers
constexpr Index kGemma2Large = 46;  // layers of the 27 billion model

/// The first layer is local, and then every other.
bool gemma2_slides(Index layer) { return layer % 2 == 0; }

void read_gemma2(const JsonFields& json, ModelConfig& c) {
  read_common(json,
              {.num_key_value_heads = 4,
               .head_dim = 256,
               .max_position_embeddings = 8192,
               .activation_key = "hidden_activation"},
              c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  read_query_scalar(json, c);
  c.attn_logit_softcapping = read_softcap(json, "attn_logit_softcapping", 50);
  c.final_logit_softcapping = read_softcap(json, "final_logit_softcapping", 30);
  check_causal(json);
  read_windows(json, json.nullable_integer("sliding_window", 4096), gemma2_slides, c);
}

nlohmann::ordered_json write_gemma2(const ModelConfig& c) {
  nlohmann::ordered_json json = write_gemma("Gemma2ForCausalLM", c);
  add_rope(c, json);
  return json;
}

void read_gguf_gemma2(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  c.tie_word_embeddings = true;
  c.attn_logit_softcapping = s.number("attn_logit_softcapping", c.attn_logit_softcapping);
  c.final_logit_softcapping = s.number("final_logit_softcapping", c.final_logit_softcapping);
  c.query_pre_attn_scalar = gguf_query_scalar(c, kGemma2Large);
  read_gguf_windows(s, 4096, kGemma2Period, c);
}

void write_gguf_gemma2(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.attn_logit_softcapping == 0 || c.final_logit_softcapping == 0)
    s.fail_unsupported("it has no soft-cap of scores or logits");
  s.number("attn_logit_softcapping", c.attn_logit_softcapping);
  s.number("final_logit_softcapping", c.final_logit_softcapping);
  check_gguf_query_scalar(c, kGemma2Large, s);
  write_gguf_windows(c, kGemma2Period, s);
}

}  // namespace

const Family& gemma2_family() {
  static const Family family = {
      .model_type = "gemma2",
      .base_prefix = "model.",
      .common = gemma2_form(),
      .read = read_gemma2,
      .write = write_gemma2,
      .rules = common_rules(norms_around()),
      .ignored = {".rotary_emb.inv_freq"},
      .slides = gemma2_slides,
      .gguf = {.architecture = "gemma2",
               .attends_in_windows = true,
               .read = read_gguf_gemma2,
               .write = write_gguf_gemma2},
  };
  return family;
}

}  // namespace focus
