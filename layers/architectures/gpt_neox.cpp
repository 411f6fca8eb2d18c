#include "layers/family.h"
#include "layers/gguf_settings.h"

// GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023): LayerNorm, attention and MLP in
// parallel, rotary positions on the first part of each head, q, k and v in one matrix, head by
// head.
namespace focus {
namespace {

void read_gpt_neox(const JsonFields& json, ModelConfig& c) {
  c.parallel_residual = json.boolean("use_parallel_residual", true);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", true);
  json.report_ignored("rope_theta", c.rope.theta);
  json.report_ignored("partial_rotary_factor", c.rope.partial_rotary_factor);
}

void write_gpt_neox(const ModelConfig& c, nlohmann::ordered_json& json) {
  json.update({{"use_parallel_residual", c.parallel_residual},
               {"attention_bias", c.attention_bias},
               {"attention_dropout", 0.0},
               {"hidden_dropout", 0.0},
               {"rotary_emb_base", c.rope.theta}});
}

/// No key gives the activation: it is transformers' own, which llama.cpp rounds (gelu by tanh).
void read_gguf_gpt_neox(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  c.parallel_residual = s.flag("use_parallel_residual", true);
}

void write_gguf_gpt_neox(const ModelConfig& c, GgufSettingsWriter& s) {
  s.flag("use_parallel_residual", c.parallel_residual);
  s.notice(
      "llama.cpp computes this architecture's gelu by tanh; transformers and this program compute "
      "it exactly");
}

}  // namespace

Family gpt_neox_family() {
  const std::string fused = "gpt_neox.layers.{}.attention.query_key_value";
  return {.model_type = "gpt_neox",
          .architecture = "GPTNeoXForCausalLM",
          .base_prefix = "gpt_neox.",
          .common = {.norm = NormKind::layer_norm,
                     .parallel_residual = true,
                     .activation = Activation::gelu,
                     .gated_mlp = false,
                     .rope = {.partial_rotary_factor = 0.25},
                     .attention_bias = true,
                     .attention_out_bias = true,
                     .mlp_bias = true},
          .json = {.grouped_heads = false, .norm_eps = 1e-5},
          .rope = {.theta = "rotary_emb_base", .partial = "rotary_pct", .partial_heads = true},
          .read = read_gpt_neox,
          .write = write_gpt_neox,
          .rules = {{"embed_tokens", "gpt_neox.embed_in"},
                    {"layers.{}.input_layernorm", "gpt_neox.layers.{}.input_layernorm"},
                    {"layers.{}.self_attn.q_proj", fused, false, 0, 3, true},
                    {"layers.{}.self_attn.k_proj", fused, false, 1, 3, true},
                    {"layers.{}.self_attn.v_proj", fused, false, 2, 3, true},
                    {"layers.{}.self_attn.o_proj", "gpt_neox.layers.{}.attention.dense"},
                    {"layers.{}.post_attention_layernorm",
                     "gpt_neox.layers.{}.post_attention_layernorm"},
                    {"layers.{}.mlp.up_proj", "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
                    {"layers.{}.mlp.down_proj", "gpt_neox.layers.{}.mlp.dense_4h_to_h"},
                    {"norm", "gpt_neox.final_layer_norm"},
                    {"lm_head", "embed_out"}},
          .keys = {{"norm_eps", "layer_norm_eps"},
                   {"rope_theta", "rotary_emb_base"},
                   {"partial_rotary_factor", "rotary_pct"}},
          .ignored = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
          .gguf = {
              .architecture = "gptneox", .read = read_gguf_gpt_neox, .write = write_gguf_gpt_neox}};
}

}  // namespace focus
