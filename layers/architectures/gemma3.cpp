#include "layers/architectures/common.h"
#include "layers/gguf_settings.h"

// Gemma 3 (Gemma Team 2025), text only: Gemma 2 with RMSNorm of each head's q and k instead of
// soft-caps, five local layers to a global one, and separate rotary embeddings in the local layers.
namespace focus {
namespace {

constexpr Index kGemma3Large = 62;  // the 27 billion model's

void read_gemma3(const JsonFields& json, ModelConfig& c) {
  read_gemma(json, c);
  report_ignored(json, "attn_logit_softcapping", 0);
}

void read_gguf_gemma3(const GgufSettings& s, ModelConfig& c) {
  c.final_logit_softcapping = s.number("final_logit_softcapping", 0);
  c.query_pre_attn_scalar = gguf_query_scalar(c, kGemma3Large);
}

void write_gguf_gemma3(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.final_logit_softcapping > 0) s.number("final_logit_softcapping", c.final_logit_softcapping);
  check_gguf_query_scalar(c, kGemma3Large, s);
}

}  // namespace

Family gemma3_family() {
  return {.model_type = "gemma3_text",
          .architecture = "Gemma3ForCausalLM",
          .common = {.norm_weight_offset = 1,
                     .norm_after = true,
                     .qk_norm = QkNorm::per_head,
                     .activation = Activation::gelu_tanh,
                     .rope = {.theta = 1e6},
                     .local_rope = RopeConfig{.theta = 1e4},
                     .scaled_embeddings = true,
                     .tie_word_embeddings = true},
          .json = {{.num_key_value_heads = 4,
                    .head_dim = 256,
                    .max_position_embeddings = 131072,
                    .activation_key = "hidden_activation",
                    .attention_bias = true}},
          .rope = {.by_layer = true, .local_theta = "rope_local_base_freq"},
          .windows = {.layers = WindowForm::Layers::periodic,
                      .width = 4096,
                      .period = 6,
                      .pattern_key = true},
          .read = read_gemma3,
          .write = write_gemma,
          .gguf = {.architecture = "gemma3",
                   .attends_in_windows = true,
                   .read = read_gguf_gemma3,
                   .write = write_gguf_gemma3}};
}

}  // namespace focus
