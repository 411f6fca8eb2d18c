#include <initializer_list>

#include "autograd/simd/bf16_kernels.h"
#include "autograd/simd/block_kernels.h"
#include "autograd/simd/kernels.h"
#include "autograd/simd/processor.h"

namespace focus::simd {

extern const Kernels avx512_kernels, avx2_kernels, baseline_kernels;
extern const BlockKernels avx512_vnni_block_kernels, avx512_block_kernels, avx2_block_kernels,
    baseline_block_kernels;
const Bf16Kernels& widened_bf16_kernels();  // bf16_widened.cpp
#ifndef FOCUS_REAL_DOUBLE
extern const Bf16Kernels avx512_bf16_kernels;
// amx_bf16.cpp
bool amx_bf16_agrees_with_its_model();
Bf16Kernels with_amx_bf16(Bf16Kernels kernels);
#endif

namespace {

template <class K>
struct Candidate {
  bool usable;
  const K* kernels;
};
template <class K>
std::vector<const K*> usable(std::initializer_list<Candidate<K>> best_first) {
  std::vector<const K*> list;
  for (const auto& [is_usable, kernels] : best_first)
    if (is_usable) list.push_back(kernels);
  return list;
}

}  // namespace

const std::vector<const Kernels*>& usable_kernels() {
  static const Instructions& has = instructions();
  static const auto list = usable<Kernels>(
      {{has.avx512, &avx512_kernels}, {has.avx2, &avx2_kernels}, {true, &baseline_kernels}});
  return list;
}

const std::vector<const BlockKernels*>& usable_block_kernels() {
  static const Instructions& has = instructions();
  static const auto list = usable<BlockKernels>({{has.vnni, &avx512_vnni_block_kernels},
                                                 {has.avx512, &avx512_block_kernels},
                                                 {has.avx2, &avx2_block_kernels},
                                                 {true, &baseline_block_kernels}});
  return list;
}

const std::vector<const Bf16Kernels*>& usable_bf16_kernels() {
#ifdef FOCUS_REAL_DOUBLE
  static const auto list = usable<Bf16Kernels>({{true, &widened_bf16_kernels()}});
#else
  static const Instructions& has = instructions();
  static const Bf16Kernels amx = with_amx_bf16(avx512_bf16_kernels);
  // Intel's vdpbf16ps has half the rate of its float32 FMA (90 of 175 GFLOP/s, Emerald Rapids),
  // AMD's twice: there the numbers are better widened.
  static const bool widening_wins = __builtin_cpu_is("intel") != 0;
  static const auto list =
      usable<Bf16Kernels>({{has.amx_bf16 && amx_bf16_agrees_with_its_model(), &amx},
                           {has.bf16 && !widening_wins, &avx512_bf16_kernels},
                           {true, &widened_bf16_kernels()},
                           {has.bf16 && widening_wins, &avx512_bf16_kernels}});
#endif
  return list;
}

const Kernels& kernels() {
  static const Kernels& best = *usable_kernels().front();
  return best;
}
const BlockKernels& block_kernels() {
  static const BlockKernels& best = *usable_block_kernels().front();
  return best;
}
const Bf16Kernels& bf16_kernels() {
  static const Bf16Kernels& best = *usable_bf16_kernels().front();
  return best;
}

const Bf16Kernels* fast_bf16_kernels() {
  const Bf16Kernels& best = bf16_kernels();
  return best.is_faster || instructions().always_bf16 ? &best : nullptr;
}

}  // namespace focus::simd
