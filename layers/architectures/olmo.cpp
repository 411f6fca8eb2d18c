#include "layers/family.h"

// OLMo 2 (OLMo et al. 2024): Llama with RMSNorm after the sub-layers instead of before them, and of
// all heads' q and k at once. OLMo 3 (OLMo et al. 2025): OLMo 2 with three local layers to a global
// one; rotary embeddings are stretched in global layers only. llama.cpp's converter calls it olmo2:
// a file of that architecture with a window is OLMo 3's.
namespace focus {

Family olmo2_family() {
  return {.model_type = "olmo2",
          .architecture = "Olmo2ForCausalLM",
          .common = {.norm_before = false, .norm_after = true, .qk_norm = QkNorm::full_width},
          .json = {.norm_eps = 1e-5, .attention_bias = true},
          .gguf = {.architecture = "olmo2"}};
}

Family olmo3_family() {
  Family family = olmo2_family();
  family.model_type = "olmo3";
  family.architecture = "Olmo3ForCausalLM";
  family.common.rope.theta = 5e5;
  family.rope.by_layer = true;
  family.windows = {.layers = WindowForm::Layers::periodic, .width = 4096, .period = 4};
  GgufForm& gguf = family.gguf;
  gguf.has_window = gguf.window_flags = gguf.attends_in_windows = true;
  return family;
}

}  // namespace focus
