#include "autograd/base/aligned_vector.h"
#include "autograd/gemm/bf16.h"
#include "autograd/simd/bf16_kernels.h"
#include "autograd/simd/kernels.h"

namespace focus::simd {
namespace {

// Where there is no instruction for it: the same products of rounded numbers by the kernels for
// Real, both operands widened a block at a time.

/// source[rows, cols] as Real, rows one after the other; valid until the thread's next call.
const Real* widened(const Bf16* source, Index pitch, Index rows, Index cols) {
  thread_local AlignedVector<Real> block;
  if (block.size() < static_cast<std::size_t>(rows * cols)) block.resize(rows * cols);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) block[i * cols + j] = from_bf16(source[i * pitch + j]);
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
             Real* c, Index ldc, Keep keep) {
  kernels().product(m, columns, depth, widened(a, a_pitch, m, depth), depth, 1,
                    {static_cast<const Real*>(b.data), b.rows, b.columns, b.first_column},
                    b.first_row, c, ldc, keep);
}

}  // namespace

const Bf16Kernels& widened_bf16_kernels();
const Bf16Kernels& widened_bf16_kernels() {
  static const Bf16Kernels widening = {
      .name = "widened",
      .vector = kernels().vector,
      .is_faster = false,
      .round = round,
      .pack = pack,
      .pack_transposed = pack_transposed,
      .transpose = transpose,
      .round_transposed = round_transposed,
      .product = product,
  };
  return widening;
}

}  // namespace focus::simd
