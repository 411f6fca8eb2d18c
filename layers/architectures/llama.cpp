#include "layers/architectures/common.h"

// Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024): RMSNorm before each sub-layer,
// rotary positions, SwiGLU, grouped-query attention.
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
          .json = {{.attention_bias = true, .mlp_bias = true}},
          .read = read_llama,
          .gguf = {.architecture = "llama", .rotary_pairs = true, .rope_factors = true}};
}

}  // namespace focus
