#include "layers/family.h"

// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on q, k and v. Qwen3 (Yang et al. 2025):
// Llama with RMSNorm of each head's q and k, and a separate head_dim.
namespace focus {

Family qwen2_family() {
  return {.model_type = "qwen2",
          .architecture = "Qwen2ForCausalLM",
          .common = {.attention_bias = true},
          .json = {.num_key_value_heads = 32, .max_position_embeddings = 32768},
          .windows = {.layers = WindowForm::Layers::upper, .width = 4096},
          .gguf = {.architecture = "qwen2"}};
}

Family qwen3_family() {
  return {.model_type = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .common = {.qk_norm = QkNorm::per_head},
          .json = {.num_key_value_heads = 32,
                   .head_dim = 128,
                   .max_position_embeddings = 32768,
                   .attention_bias = true},
          .windows = {.layers = WindowForm::Layers::upper, .width = 4096},
          .gguf = {.architecture = "qwen3"}};
}

}  // namespace focus
