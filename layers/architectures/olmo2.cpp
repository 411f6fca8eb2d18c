#include "layers/architectures/common.h"

// OLMo 2 (OLMo et al. 2024): Llama with RMSNorm after the sub-layers instead of before them, and of
// all heads' q and k at once.
namespace focus {

Family olmo2_family() {
  return {.model_type = "olmo2",
          .architecture = "Olmo2ForCausalLM",
          .common = {.norm_before = false, .norm_after = true, .qk_norm = QkNorm::full_width},
          .json = {{.rms_norm_eps = 1e-5, .attention_bias = true}},
          .gguf = {.architecture = "olmo2"}};
}

}  // namespace focus
