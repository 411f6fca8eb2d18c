#include "autograd/simd/processor.h"

#include <cpuid.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "autograd/base/check.h"

namespace focus::simd {
namespace {

enum class Kind { baseline, avx2, avx512, avx512_vnni, avx512_bf16, amx };
constexpr std::array<std::string_view, 6> kKinds = {"baseline",    "avx2",        "avx512",
                                                    "avx512_vnni", "avx512_bf16", "amx"};

bool allowed(Kind kind) {
  static const auto most = [] {
    const char* const name = std::getenv("FOCUS_KERNELS");
    if (name == nullptr) return std::ssize(kKinds) - 1;
    const auto found = std::ranges::find(kKinds, std::string_view(name));
    if (found == kKinds.end())
      fail("FOCUS_KERNELS is \"{}\": expected {}", name, fmt::join(kKinds, ", "));
    return found - kKinds.begin();
  }();
  return static_cast<std::ptrdiff_t>(kind) <= most;
}

}  // namespace

bool has_avx2() {
  return allowed(Kind::avx2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512() {
  return allowed(Kind::avx512) && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() {
  return allowed(Kind::avx512_bf16) && has_avx512() && __builtin_cpu_supports("avx512bf16");
}
bool has_avx512_vnni() {
  return allowed(Kind::avx512_vnni) && has_avx512() && __builtin_cpu_supports("avx512vnni");
}

bool may_use_tiles(TileProducts products) {
  if (!allowed(Kind::amx)) return false;
  constexpr unsigned kTile = 1u << 24, kOsxsave = 1u << 27;
  const unsigned wanted = kTile | static_cast<unsigned>(products);
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & wanted) != wanted) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsxsave) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  if ((low & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch/x86/include/uapi/asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace focus::simd
