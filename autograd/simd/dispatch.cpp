#include "autograd/simd/choose.h"
#include "autograd/simd/kernels.h"
#include "autograd/simd/processor.h"

namespace focus::simd {

extern const Kernels avx512_kernels;
extern const Kernels avx2_kernels;
extern const Kernels baseline_kernels;

KernelList usable_kernels() {
  KernelList list{};
  if (has_avx512()) list.items[list.count++] = &avx512_kernels;
  if (has_avx2()) list.items[list.count++] = &avx2_kernels;
  list.items[list.count++] = &baseline_kernels;
  return list;
}

const Kernels& kernels_named(const char* name) {
  return named_kernels(usable_kernels(), name, "FOCUS_SIMD");
}

const Kernels& kernels() {
  static const Kernels& chosen = chosen_kernels(usable_kernels(), "FOCUS_SIMD");
  return chosen;
}

}  // namespace focus::simd
