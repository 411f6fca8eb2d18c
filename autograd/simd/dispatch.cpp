#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "autograd/base/check.h"
#include "autograd/simd/bf16_kernels.h"
#include "autograd/simd/block_kernels.h"
#include "autograd/simd/kernels.h"

namespace focus::simd {

extern const Kernels avx512_kernels, avx2_kernels, baseline_kernels;
extern const BlockKernels avx512_vnni_block_kernels, avx512_block_kernels, avx2_block_kernels,
    baseline_block_kernels;
const Bf16Kernels& widened_bf16_kernels();  // bf16_widened.cpp
#ifndef FOCUS_REAL_DOUBLE
extern const Bf16Kernels avx512_bf16_kernels;
extern const AmxBf16 amx_bf16;
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

/// Whether the processor has tiles, the system saves them and lets this process use them: without
/// its permission their first instruction would end the process.
bool may_use_tiles() {
  constexpr unsigned kOsxsave = 1u << 27;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsxsave) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  if ((low & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch/x86/include/uapi/asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Instructions of_processor() {
  Instructions all;
  all.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  all.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  all.vnni = all.avx512 && __builtin_cpu_supports("avx512vnni");
  all.bf16 = all.avx512 && __builtin_cpu_supports("avx512bf16");
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;  // of leaf 7
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTile) != 0;
  all.amx_bf16 = tiles && all.bf16 && (d & kBf16) != 0;
  return all;
}

}  // namespace

Instructions selected(Instructions all, const char* words) {
  Instructions some = all;
  int levels = 0;
  std::string_view rest = words;
  for (bool more = !rest.empty(); more;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
    const bool baseline = word == "baseline", avx2 = word == "avx2", avx512 = word == "avx512";
    if (baseline || avx2 || avx512) {
      if (++levels > 1) fail("FOCUS_SIMD is \"{}\": it names more than one level", words);
      if ((avx2 && !all.avx2) || (avx512 && !all.avx512))
        fail("FOCUS_SIMD is \"{}\", but this machine can run baseline{}", words,
             all.avx2 ? ", avx2" : "");
      some.avx2 &= !baseline;
      some.avx512 &= avx512;
    } else if (word == "no-vnni") {
      some.vnni = false;
    } else if (word == "no-bf16") {
      some.bf16 = false;
    } else if (word == "no-amx") {
      some.amx_bf16 = false;
    } else if (word == "always-bf16") {
      some.always_bf16 = true;
    } else {
      fail(
          "FOCUS_SIMD is \"{}\": expected one of baseline, avx2, avx512, and any of no-vnni, "
          "no-bf16, no-amx, always-bf16, with commas between them",
          words);
    }
  }
  some.vnni &= some.avx512;
  some.bf16 &= some.avx512;
  some.amx_bf16 &= some.bf16;
  return some;
}

const Instructions& instructions() {
  static const Instructions found = [] {
    const char* const words = std::getenv("FOCUS_SIMD");
    Instructions some = words == nullptr ? of_processor() : selected(of_processor(), words);
    some.amx_bf16 = some.amx_bf16 && may_use_tiles();
    return some;
  }();
  return found;
}

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
  static const Bf16Kernels amx = [] {
    Bf16Kernels kernels = avx512_bf16_kernels;
    kernels.name = "amx_bf16";
    kernels.by_tiles = true;
    kernels.product = amx_bf16.product;
    return kernels;
  }();
  // Intel's vdpbf16ps has half the rate of its float32 FMA (90 of 175 GFLOP/s, Emerald Rapids),
  // AMD's twice: there the numbers are better widened.
  static const bool widening_wins = __builtin_cpu_is("intel") != 0;
  static const auto list =
      usable<Bf16Kernels>({{has.amx_bf16 && amx_bf16.agrees_with_its_model(), &amx},
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
