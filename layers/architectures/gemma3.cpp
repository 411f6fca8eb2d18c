#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// Gemma 3 (Gemma Team 2025), text alone: Gemma 2 with RMSNorm of each head's q and k instead of
// soft-caps, five local layers to a global one, and rotary embeddings of their own in the local
// layers.
namespace focus {
namespace {

constexpr Index kGemma3Period = 6;  // of local and global layers
constexpr Index kGemma3Large = 62;  // layers of the 27 billion model
constexpr double kGemma3Theta = 1e6, kGemma3LocalTheta = 1e4;

/// What its models are, whatever their size.
ModelConfig gemma3_form() {
  ModelConfig c;
  c.norm_weight_offset = 1;
  c.norm_after = true;
  c.qk_norm = QkNorm::per_head;
  c.activation = Activation::gelu_tanh;
  c.scaled_embeddings = true;
  c.tie_word_embeddings = true;
  c.rope.theta = kGemma3Theta;
  c.local_rope = RopeConfig{.theta = kGemma3LocalTheta};
  return c;
}

/// The last of every six layers is global.
bool gemma3_slides(Index layer) { return layer % kGemma3Period != kGemma3Period - 1; }

void read_gemma3(const JsonFields& json, ModelConfig& c) {
  read_common(json,
              {.num_key_value_heads = 4,
               .head_dim = 256,
               .max_position_embeddings = 131072,
               .activation_key = "hidden_activation",
               .own_rope = true},
              c);
  read_ropes_by_layer(json, kGemma3Theta, kGemma3LocalTheta, "rope_local_base_freq", c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  read_query_scalar(json, c);
  c.final_logit_softcapping = read_softcap(json, "final_logit_softcapping", 0);
  pass_over(json, "attn_logit_softcapping", 0);
  check_causal(json);
  const Index period = json.integer("sliding_window_pattern", kGemma3Period);
  check(period > 0, "{}: sliding_window_pattern must be positive, not 0", json.where());
  read_windows(
      json, json.nullable_integer("sliding_window", 4096),
      [&](Index layer) { return layer % period != period - 1; }, c);
}

nlohmann::ordered_json write_gemma3(const ModelConfig& c) {
  nlohmann::ordered_json json = write_gemma("Gemma3ForCausalLM", c);
  json["rope_local_base_freq"] = c.local_rope ? c.local_rope->theta : c.rope.theta;
  add_ropes_by_layer(c, json);
  return json;
}

void read_gguf_gemma3(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  c.final_logit_softcapping = s.number("final_logit_softcapping", 0);
  c.query_pre_attn_scalar = gguf_query_scalar(c, kGemma3Large);
  read_gguf_windows(s, 0, kGemma3Period, c);
  read_gguf_local_rope(s, kGemma3LocalTheta, c);
}

void write_gguf_gemma3(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.final_logit_softcapping > 0) s.number("final_logit_softcapping", c.final_logit_softcapping);
  check_gguf_query_scalar(c, kGemma3Large, s);
  write_gguf_windows(c, kGemma3Period, s);
  const RopeConfig& local = c.local_rope ? *c.local_rope : c.rope;
  if (local.scaling != RopeConfig::Scaling::none)
    s.fail_unsupported("the rotary embeddings of its local layers are scaled");
  s.number("rope.freq_base_swa", local.theta);
}

}  // namespace

const Family& gemma3_family() {
  static const Family family = {
      .model_type = "gemma3_text",
      .base_prefix = "model.",
      .common = gemma3_form(),
      .read = read_gemma3,
      .write = write_gemma3,
      .rules = common_rules(with_qk_norms(norms_around())),
      .ignored = {".rotary_emb.inv_freq"},
      .slides = gemma3_slides,
      .gguf = {.architecture = "gemma3",
               .attends_in_windows = true,
               .read = read_gguf_gemma3,
               .write = write_gguf_gemma3},
  };
  return family;
}

}  // namespace focus
