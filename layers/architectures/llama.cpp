#include "layers/family.h"

// Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024): RMSNorm before each sub-layer,
// rotary positions, SwiGLU, grouped-query attention. Mistral (Jiang et al. 2023): Llama with a
// sliding window in every layer, or in none. llama.cpp's converter calls it llama and omits the
// window: a file with a window is Mistral's.
namespace focus {
namespace {

void read_llama(const JsonFields& json, ModelConfig&) {
  check(json.integer("pretraining_tp", 1) == 1, "{}: pretraining_tp other than 1 is not supported",
        json.where());
}

}  // namespace

Family llama_family() {
  return {.model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .json = {.attention_bias = true, .mlp_bias = true},
          .read = read_llama,
          .gguf = {.architecture = "llama", .rotary_pairs = true, .rope_factors = true}};
}

Family mistral_family() {
  return {
      .model_type = "mistral",
      .architecture = "MistralForCausalLM",
      .json = {.num_key_value_heads = 8, .max_position_embeddings = 131072},
      .windows = {.layers = WindowForm::Layers::all, .width = 4096, .uniform = true},
      .gguf = {
          .architecture = "llama", .rotary_pairs = true, .has_window = true, .rope_factors = true}};
}

}  // namespace focus
