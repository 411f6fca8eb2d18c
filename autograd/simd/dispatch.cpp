#include <cstdlib>
#include <string>

#include "autograd/check.h"
#include "autograd/simd/kernels.h"

namespace focus::simd {

extern const Kernels avx512_kernels;
extern const Kernels avx2_kernels;
extern const Kernels baseline_kernels;

KernelList usable_kernels() {
  KernelList list{};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    list.items[list.count++] = &avx512_kernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    list.items[list.count++] = &avx2_kernels;
  list.items[list.count++] = &baseline_kernels;
  return list;
}

const Kernels& kernels_named(const char* name) {
  const KernelList list = usable_kernels();
  std::string names;
  for (int i = 0; i < list.count; ++i) {
    const std::string usable = list.items[i]->name;
    if (usable == name) return *list.items[i];
    names += (i > 0 ? ", " : "") + usable;
  }
  fail("FOCUS_SIMD is \"{}\", but this machine can run {}: choose one of these, or unset it", name,
       names);
}

const Kernels& kernels() {
  static const Kernels& chosen = []() -> const Kernels& {
    const char* name = std::getenv("FOCUS_SIMD");
    return name == nullptr ? *usable_kernels().items[0] : kernels_named(name);
  }();
  return chosen;
}

}  // namespace focus::simd
