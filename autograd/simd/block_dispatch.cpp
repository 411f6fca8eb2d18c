#include <string_view>

#include "autograd/simd/block_kernels.h"
#include "autograd/simd/choose.h"
#include "autograd/simd/kernels.h"

namespace focus::simd {

extern const BlockKernels avx512_block_kernels;
extern const BlockKernels avx2_block_kernels;
extern const BlockKernels baseline_block_kernels;

BlockKernelList usable_block_kernels() {
  BlockKernelList list{};
  const KernelList usable = usable_kernels();
  for (int i = 0; i < usable.count; ++i)
    for (const BlockKernels* of :
         {&avx512_block_kernels, &avx2_block_kernels, &baseline_block_kernels})
      if (std::string_view(usable.items[i]->name) == of->name) list.items[list.count++] = of;
  return list;
}

const BlockKernels& block_kernels() {
  static const BlockKernels& chosen = chosen_kernels(usable_block_kernels(), "FOCUS_SIMD");
  return chosen;
}

}  // namespace focus::simd
