#include <string_view>

#include "autograd/simd/choose.h"
#include "autograd/simd/kernels.h"
#include "autograd/simd/processor.h"
#include "autograd/simd/q8_kernels.h"

namespace focus::simd {

extern const Q8Kernels avx512_vnni_q8_kernels;
extern const Q8Kernels avx512_q8_kernels;
extern const Q8Kernels avx2_q8_kernels;
extern const Q8Kernels baseline_q8_kernels;

Q8KernelList usable_q8_kernels() {
  Q8KernelList list{};
  if (has_avx512_vnni()) list.items[list.count++] = &avx512_vnni_q8_kernels;
  const KernelList usable = usable_kernels();
  for (int i = 0; i < usable.count; ++i)
    for (const Q8Kernels* of : {&avx512_q8_kernels, &avx2_q8_kernels, &baseline_q8_kernels})
      if (std::string_view(usable.items[i]->name) == of->name) list.items[list.count++] = of;
  return list;
}

const Q8Kernels& q8_kernels() {
  static const Q8Kernels& chosen = chosen_kernels(usable_q8_kernels(), "FOCUS_Q8");
  return chosen;
}

}  // namespace focus::simd
