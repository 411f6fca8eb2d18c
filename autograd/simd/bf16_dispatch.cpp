#include <vector>

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

void product(Index m, Index columns, Index depth, const Bf16* a, Index a_pitch, const void* packed,
             Real* c, Index ldc, bool add) {
  kernels().product(m, columns, depth, widened(a, a_pitch, m, depth), depth, 1,
                    {static_cast<const Real*>(packed), depth, columns}, 0, c, ldc, add);
}

}  // namespace

#ifndef FOCUS_REAL_DOUBLE
extern const Bf16Kernels avx512_bf16_kernels;
#endif

Bf16KernelList usable_bf16_kernels() {
  static const Bf16Kernels widening = {
      .name = "widened",
      .vector = kernels().vector,
      .round = round,
      .pack = pack,
      .pack_transposed = pack_transposed,
      .product = product,
  };
  Bf16KernelList list{};
#ifndef FOCUS_REAL_DOUBLE
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    list.items[list.count++] = &avx512_bf16_kernels;
#endif
  list.items[list.count++] = &widening;
  return list;
}

const Bf16Kernels& bf16_kernels() {
  static const Bf16Kernels& best = *usable_bf16_kernels().items[0];
  return best;
}

}  // namespace focus::simd
