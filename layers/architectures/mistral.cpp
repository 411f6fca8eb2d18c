#include "layers/architectures/common.h"

// Mistral (Jiang et al. 2023): Llama with a sliding window in every layer, or in none. llama.cpp's
// converter calls it llama and omits the window: a file with a window is Mistral's.
namespace focus {

Family mistral_family() {
  return {
      .model_type = "mistral",
      .architecture = "MistralForCausalLM",
      .json = {{.num_key_value_heads = 8, .max_position_embeddings = 131072}},
      .windows = {.layers = WindowForm::Layers::all, .width = 4096, .uniform = true},
      .gguf = {
          .architecture = "llama", .rotary_pairs = true, .has_window = true, .rope_factors = true}};
}

}  // namespace focus
