#include "layers/architectures/common.h"

// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on q, k and v.
namespace focus {

Family qwen2_family() {
  return {.model_type = "qwen2",
          .architecture = "Qwen2ForCausalLM",
          .common = {.attention_bias = true},
          .json = {{.num_key_value_heads = 32, .max_position_embeddings = 32768}},
          .windows = {.layers = WindowForm::Layers::upper, .width = 4096},
          .gguf = {.architecture = "qwen2"}};
}

}  // namespace focus
