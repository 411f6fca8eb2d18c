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
  Family family = qwen2_family();
  family.model_type = family.gguf.architecture = "qwen3";
  family.architecture = "Qwen3ForCausalLM";
  family.common = {.qk_norm = QkNorm::per_head};
  family.json.head_dim = 128;
  family.json.attention_bias = true;
  return family;
}

}  // namespace focus
