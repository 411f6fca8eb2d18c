#include "layers/family.h"
#include "layers/gguf_settings.h"

// Phi-3 and Phi-4-mini (Abdin et al. 2024): Llama with q, k and v in one matrix, gate and up in
// one, rotary embeddings of a part of each head, and longrope.
namespace focus {
namespace {

using Scaling = RopeConfig::Scaling;

bool is_phi3_scaling(Scaling scaling) {
  return scaling == Scaling::none || scaling == Scaling::longrope;
}

void read_phi3(const JsonFields& json, ModelConfig& c) {
  check(is_phi3_scaling(c.rope.scaling), "{}: phi3 supports only rope_type default or longrope",
        json.where());
}

void read_gguf_phi3(const GgufSettings& s, ModelConfig& c) {
  if (!is_phi3_scaling(c.rope.scaling))
    fail("{}: {}: phi3 supports only longrope scaling, or none", s.where(),
         s.key("rope.scaling.type"));
}

}  // namespace

Family phi3_family() {
  return {
      .model_type = "phi3",
      .architecture = "Phi3ForCausalLM",
      .json = {.max_position_embeddings = 4096, .norm_eps = 1e-5, .pad_token = 32000},
      .rope = {.partial_heads = true, .original = 4096, .yarn_is_longrope = true},
      .windows = {.layers = WindowForm::Layers::all},
      .read = read_phi3,
      .rules = {{"embed_tokens", "model.embed_tokens"},
                {"layers.{}.input_layernorm", "model.layers.{}.input_layernorm"},
                {"layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.qkv_proj", false, 0, 3},
                {"layers.{}.self_attn.k_proj", "model.layers.{}.self_attn.qkv_proj", false, 1, 3},
                {"layers.{}.self_attn.v_proj", "model.layers.{}.self_attn.qkv_proj", false, 2, 3},
                {"layers.{}.self_attn.o_proj", "model.layers.{}.self_attn.o_proj"},
                {"layers.{}.post_attention_layernorm", "model.layers.{}.post_attention_layernorm"},
                {"layers.{}.mlp.gate_proj", "model.layers.{}.mlp.gate_up_proj", false, 0, 2},
                {"layers.{}.mlp.up_proj", "model.layers.{}.mlp.gate_up_proj", false, 1, 2},
                {"layers.{}.mlp.down_proj", "model.layers.{}.mlp.down_proj"},
                {"norm", "model.norm"},
                {"lm_head", "lm_head"}},
      .gguf = {.architecture = "phi3",
               .longrope = true,
               .partial_rotary = true,
               .read = read_gguf_phi3}};
}

}  // namespace focus
