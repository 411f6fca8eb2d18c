#include <cmath>

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

/// The first layer is local, and then every other.
bool gemma2_slides(Index layer) { return layer % 2 == 0; }

/// Null says that there is none.
double softcap(const JsonFields& json, const char* key, double otherwise) {
  const std::optional<double> cap = json.nullable_number(key, otherwise);
  check(!cap || *cap > 0, "{}: {} must be positive or null, not {}", json.where(), key, *cap);
  return cap.value_or(0);
}

void read_gemma2(const JsonFields& json, ModelConfig& c) {
  read_common(json,
              {.num_key_value_heads = 4,
               .head_dim = 256,
               .max_position_embeddings = 8192,
               .activation_key = "hidden_activation"},
              c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  c.query_pre_attn_scalar = json.number("query_pre_attn_scalar", 256);
  check(c.query_pre_attn_scalar > 0, "{}: query_pre_attn_scalar must be positive, not {}",
        json.where(), c.query_pre_attn_scalar);
  if (c.query_pre_attn_scalar == static_cast<double>(c.head_dim)) c.query_pre_attn_scalar = 0;
  c.attn_logit_softcapping = softcap(json, "attn_logit_softcapping", 50);
  c.final_logit_softcapping = softcap(json, "final_logit_softcapping", 30);
  check(!json.boolean("use_bidirectional_attention", false),
        "{}: use_bidirectional_attention is not supported: attention here is causal", json.where());
  read_windows(json, json.nullable_integer("sliding_window", 4096), gemma2_slides, c);
}

/// transformers takes it as an integer only.
nlohmann::ordered_json scalar(const ModelConfig& c) {
  const double x = c.query_pre_attn_scalar;
  if (x == 0) return c.head_dim;
  return x == std::floor(x) ? nlohmann::ordered_json(static_cast<Index>(x))
                            : nlohmann::ordered_json(x);
}

nlohmann::ordered_json write_gemma2(const ModelConfig& c) {
  const auto or_null = [](double cap) {
    return cap > 0 ? nlohmann::ordered_json(cap) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json json = write_common("Gemma2ForCausalLM", c);
  json.erase("hidden_act");
  json["hidden_activation"] =
      c.activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : activation_name(c.activation);
  json["attention_bias"] = c.attention_bias;
  json["query_pre_attn_scalar"] = scalar(c);
  json["attn_logit_softcapping"] = or_null(c.attn_logit_softcapping);
  json["final_logit_softcapping"] = or_null(c.final_logit_softcapping);
  json["sliding_window"] = window_or_null(c);
  json["layer_types"] = layer_types(c);
  add_rope(c, json);
  return json;
}

/// No key says it: the 27 billion model, of 46 layers, is the one where it is not head_dim (0).
double gemma2_gguf_scalar(const ModelConfig& c) {
  if (c.num_hidden_layers != 46) return 0;
  return static_cast<double>(c.hidden_size) / static_cast<double>(c.num_attention_heads);
}

void read_gguf_gemma2(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  c.tie_word_embeddings = true;
  c.attn_logit_softcapping = s.number("attn_logit_softcapping", c.attn_logit_softcapping);
  c.final_logit_softcapping = s.number("final_logit_softcapping", c.final_logit_softcapping);
  c.query_pre_attn_scalar = gemma2_gguf_scalar(c);
  read_gguf_windows(s, 4096, kGemma2Period, c);
}

/// The period of local and global layers: every so manieth is global.
Index gemma2_period(const ModelConfig& c, GgufSettingsWriter& s) {
  for (Index period = 1; period <= c.num_hidden_layers + 1; ++period) {
    Index fitting = 0;
    for (Index i = 0; i < c.num_hidden_layers; ++i)
      fitting += (c.sliding_window(i) > 0) == (i % period != period - 1) ? 1 : 0;
    if (fitting == c.num_hidden_layers) return period;
  }
  s.cannot_say("its local and global layers follow no period");
}

void write_gguf_gemma2(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.attn_logit_softcapping == 0 || c.final_logit_softcapping == 0)
    s.cannot_say("it has no soft-cap of scores or of logits");
  s.number("attn_logit_softcapping", c.attn_logit_softcapping);
  s.number("final_logit_softcapping", c.final_logit_softcapping);
  const auto scalar_of = [&](double x) { return x == 0 ? static_cast<double>(c.head_dim) : x; };
  if (scalar_of(gemma2_gguf_scalar(c)) != scalar_of(c.query_pre_attn_scalar))
    s.cannot_say(fmt::format("its query_pre_attn_scalar is {}", c.query_pre_attn_scalar));
  // llama.cpp ends where no layer has a window.
  if (c.widest_window() == 0) s.cannot_say("none of its layers has a sliding window");
  s.integer("attention.sliding_window", c.widest_window());
  const Index period = gemma2_period(c, s);
  if (period != kGemma2Period) s.integer("attention.sliding_window_pattern", period);
}

}  // namespace

const Family& gemma2_family() {
  static const Family family = {
      .model_type = "gemma2",
      .base_prefix = "model.",
      .common = gemma2_form(),
      .read = read_gemma2,
      .write = write_gemma2,
      .rules = common_rules(
          {{"layers.{}.input_layernorm.weight", "model.layers.{}.input_layernorm.weight"},
           {"layers.{}.attention_out_norm.weight",
            "model.layers.{}.post_attention_layernorm.weight"},
           {"layers.{}.post_attention_layernorm.weight",
            "model.layers.{}.pre_feedforward_layernorm.weight"},
           {"layers.{}.mlp_out_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight"}}),
      .ignored = {".rotary_emb.inv_freq"},
      .slides = gemma2_slides,
      .gguf = {.architecture = "gemma2", .read = read_gguf_gemma2, .write = write_gguf_gemma2},
  };
  return family;
}

}  // namespace focus
