#include "layers/family.h"

// GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each sub-layer, biases
// everywhere, tied head. Its Conv1D weights are stored [in, out], q, k and v in one.
namespace focus {
namespace {

void read_gpt2(const JsonFields& json, ModelConfig&) {
  check(json.boolean("scale_attn_weights", true), "{}: scale_attn_weights false is not supported",
        json.where());
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    check(!json.boolean(key, false), "{}: {} is not supported", json.where(), key);
}

void write_gpt2(const ModelConfig&, nlohmann::ordered_json& json) {
  json.update({{"resid_pdrop", 0.0}, {"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}});
}

}  // namespace

Family gpt2_family() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .base_prefix = "transformer.",
          .common = {.norm = NormKind::layer_norm,
                     .activation = Activation::gelu_tanh,
                     .gated_mlp = false,
                     .learned_positions = true,
                     .attention_bias = true,
                     .attention_out_bias = true,
                     .mlp_bias = true,
                     .tie_word_embeddings = true},
          .json = {.grouped_heads = false,
                   .inner_factor = 4,
                   .max_position_embeddings = 0,
                   .norm_eps = 1e-5,
                   .activation_key = "activation_function"},
          .read = read_gpt2,
          .write = write_gpt2,
          .rules = {{"embed_tokens", "transformer.wte"},
                    {"embed_positions", "transformer.wpe"},
                    {"layers.{}.input_layernorm", "transformer.h.{}.ln_1"},
                    {"layers.{}.self_attn.q_proj", "transformer.h.{}.attn.c_attn", true, 0, 3},
                    {"layers.{}.self_attn.k_proj", "transformer.h.{}.attn.c_attn", true, 1, 3},
                    {"layers.{}.self_attn.v_proj", "transformer.h.{}.attn.c_attn", true, 2, 3},
                    {"layers.{}.self_attn.o_proj", "transformer.h.{}.attn.c_proj", true},
                    {"layers.{}.post_attention_layernorm", "transformer.h.{}.ln_2"},
                    {"layers.{}.mlp.up_proj", "transformer.h.{}.mlp.c_fc", true},
                    {"layers.{}.mlp.down_proj", "transformer.h.{}.mlp.c_proj", true},
                    {"norm", "transformer.ln_f"},
                    {"lm_head", "lm_head"}},
          .keys = {{"hidden_size", "n_embd"},
                   {"intermediate_size", "n_inner"},
                   {"num_hidden_layers", "n_layer"},
                   {"num_attention_heads", "n_head"},
                   {"max_position_embeddings", "n_positions"},
                   {"norm_eps", "layer_norm_epsilon"}},
          .ignored = {".attn.bias", ".attn.masked_bias"},
          .gguf = {.architecture = "gpt2"}};
}

}  // namespace focus
