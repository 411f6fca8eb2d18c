#include "layers/architectures/common.h"
#include "layers/gguf_settings.h"

// Gemma 2 (Gemma Team 2024): local and global layers alternate, soft-capped scores and logits,
// scaled embeddings, RMSNorm before and after each sub-layer with weights stored less 1, GeGLU.
namespace focus {
namespace {

constexpr Index kGemma2Large = 46;  // the 27 billion model's

void read_gemma2(const JsonFields& json, ModelConfig& c) {
  read_gemma(json, c);
  c.attn_logit_softcapping = read_softcap(json, "attn_logit_softcapping", c.attn_logit_softcapping);
}

void read_gguf_gemma2(const GgufSettings& s, ModelConfig& c) {
  c.tie_word_embeddings = true;
  c.attn_logit_softcapping = s.number("attn_logit_softcapping", c.attn_logit_softcapping);
  c.final_logit_softcapping = s.number("final_logit_softcapping", c.final_logit_softcapping);
  c.query_pre_attn_scalar = gguf_query_scalar(c, kGemma2Large);
}

void write_gguf_gemma2(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.attn_logit_softcapping == 0 || c.final_logit_softcapping == 0)
    s.fail_unsupported("it has no soft-cap of scores or logits");
  s.number("attn_logit_softcapping", c.attn_logit_softcapping);
  s.number("final_logit_softcapping", c.final_logit_softcapping);
  check_gguf_query_scalar(c, kGemma2Large, s);
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
          .json = {{.num_key_value_heads = 4,
                    .head_dim = 256,
                    .max_position_embeddings = 8192,
                    .activation_key = "hidden_activation",
                    .attention_bias = true}},
          .windows = {.layers = WindowForm::Layers::periodic, .width = 4096, .period = 2},
          .read = read_gemma2,
          .write = write_gemma,
          .gguf = {.architecture = "gemma2",
                   .window = 4096,
                   .attends_in_windows = true,
                   .read = read_gguf_gemma2,
                   .write = write_gguf_gemma2}};
}

}  // namespace focus
