#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "autograd/check.h"
#include "autograd/gemm/bf16.h"
#include "autograd/simd/bf16_kernels.h"
#include "autograd/simd/kernels.h"

namespace focus::simd {
namespace {

// Where there is no instruction for it: the same products of rounded numbers by the kernels for
// Real, both operands widened a block at a time.

/// source[rows, cols] as Real, rows one after the other; valid until the thread's next call.
const Real* widened(const Bf16* source, Index pitch, Index rows, Index cols) {
  thread_local std::vector<Real> block;
  if (block.size() < static_cast<std::size_t>(rows * cols))
    block.resize(static_cast<std::size_t>(rows * cols));
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j)
      block[static_cast<std::size_t>(i * cols + j)] = from_bf16(source[i * pitch + j]);
  return block.data();
}

void round(const Real* source, Index n, Bf16* to) {
  for (Index i = 0; i < n; ++i) to[i] = to_bf16(static_cast<float>(source[i]));
}

void pack(const Bf16* source, Index pitch, Index depth, Index columns, void* packed) {
  kernels().pack(widened(source, pitch, depth, columns), columns, depth, columns, 1,
                 static_cast<Real*>(packed));
}

void pack_transposed(const Bf16* source, Index pitch, Index columns, Index depth, void* packed) {
  kernels().pack_transposed(widened(source, pitch, columns, depth), depth, columns, depth, 1,
                            static_cast<Real*>(packed));
}

void transpose(const Bf16* source, Index pitch, Index rows, Index cols, Bf16* to, Index to_pitch) {
  for (Index i = 0; i < rows; i += 2)
    for (Index j = 0; j < cols; ++j) {
      Bf16* pair = to + j * to_pitch + i;
      pair[0] = source[i * pitch + j];
      if (i + 1 < rows) pair[1] = source[(i + 1) * pitch + j];
    }
}

void round_transposed(const Real* source, Index ld, Index rows, Index cols, Bf16* to,
                      Index to_pitch) {
  for (Index j = 0; j < cols; ++j)
    for (Index i = 0; i < rows + rows % 2; ++i)
      to[j * to_pitch + i] = i < rows ? to_bf16(static_cast<float>(source[i * ld + j])) : Bf16{0};
}

void product(Index m, Index columns, Index depth, const Bf16* a, Index a_pitch, const Bf16Panels& b,
             Real* c, Index ldc, bool add) {
  kernels().product(m, columns, depth, widened(a, a_pitch, m, depth), depth, 1,
                    {static_cast<const Real*>(b.data), b.rows, b.columns, b.first_column},
                    b.first_row, c, ldc, add);
}

void product_from(Index m, Index columns, Index depth, const Bf16* a, Index a_pitch,
                  const Bf16Panels& b, Real* c, Index ldc, const Real* row) {
  kernels().product_from(m, columns, depth, widened(a, a_pitch, m, depth), depth, 1,
                         {static_cast<const Real*>(b.data), b.rows, b.columns, b.first_column},
                         b.first_row, c, ldc, row);
}

}  // namespace

#ifndef FOCUS_REAL_DOUBLE
extern const Bf16Kernels avx512_bf16_kernels, amx_bf16_kernels;
bool amx_agrees_with_its_model();  // amx_bf16.cpp

namespace {

bool has_avx512_bf16() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

/// Whether the processor has tiles, the system saves them, lets this process use them, and they
/// compute what they should. Without the permission their first instruction would end the process.
bool has_amx() {
  constexpr unsigned kTile = 1u << 24, kBf16 = 1u << 22, kOsxsave = 1u << 27;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTile) == 0 || (d & kBf16) == 0)
    return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsxsave) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  if ((low & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch/x86/include/uapi/asm/prctl.h
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return false;
  return amx_agrees_with_its_model();
}

}  // namespace
#endif

Bf16KernelList usable_bf16_kernels() {
  static const Bf16Kernels widening = {
      .name = "widened",
      .vector = kernels().vector,
      .pays = false,
      .three_pay = false,
      .round = round,
      .pack = pack,
      .pack_transposed = pack_transposed,
      .transpose = transpose,
      .round_transposed = round_transposed,
      .product = product,
      .product_from = product_from,
  };
  Bf16KernelList list{};
  const auto add = [&](const Bf16Kernels& one) { list.items[list.count++] = &one; };
#ifndef FOCUS_REAL_DOUBLE
  static const bool amx = has_avx512_bf16() && has_amx();
  if (amx) add(amx_bf16_kernels);
  // Intel's vdpbf16ps has half the rate of its float32 FMA (90 of 175 GFLOP/s, Emerald Rapids),
  // AMD's twice: there the numbers are better widened.
  const bool widening_wins = __builtin_cpu_is("intel") != 0;
  if (has_avx512_bf16() && !widening_wins) add(avx512_bf16_kernels);
  add(widening);
  if (has_avx512_bf16() && widening_wins) add(avx512_bf16_kernels);
#else
  add(widening);
#endif
  return list;
}

namespace {

const char* asked_name() {
  static const char* const name = std::getenv("FOCUS_BF16");
  return name;
}

const Bf16Kernels& bf16_kernels_named(const std::string& name) {
  const Bf16KernelList list = usable_bf16_kernels();
  std::string names;
  for (int i = 0; i < list.count; ++i) {
    if (list.items[i]->name == name) return *list.items[i];
    names += (i > 0 ? ", " : "") + std::string(list.items[i]->name);
  }
  fail("FOCUS_BF16 is \"{}\", but this machine can run {}: choose one of these, or unset it", name,
       names);
}

}  // namespace

const Bf16Kernels& bf16_kernels() {
  static const Bf16Kernels& chosen =
      asked_name() == nullptr ? *usable_bf16_kernels().items[0] : bf16_kernels_named(asked_name());
  return chosen;
}

const Bf16Kernels* bf16_attention_kernels() {
  const Bf16Kernels& chosen = bf16_kernels();
  return chosen.pays || asked_name() != nullptr ? &chosen : nullptr;
}

const Bf16Kernels* bf16x3_kernels() {
  const Bf16Kernels& chosen = bf16_kernels();
  return chosen.three_pay || asked_name() != nullptr ? &chosen : nullptr;
}

}  // namespace focus::simd
