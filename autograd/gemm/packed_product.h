#pragma once

#include <algorithm>

#include "autograd/base/aligned_vector.h"
#include "autograd/gemm/blocked_product.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"

// The product behind gemm(), whatever its right-hand side is stored in: `pack(p, depth, j, columns,
// packed)` puts B's rows [p, p + depth), columns [j, j + columns) into panels of Real. What a
// number of C is the sum of, and in which order, is decided here alone.
namespace focus::packed {

/// Rows of B that are packed at a time: with block_columns() a quarter of a core's second-level
/// cache, which holds beside it the rows of A that go over it.
inline constexpr Index kBlockDepth = 256;
/// Rows of A that go over all of a packed block before the next do: these and their sums stay in
/// the second-level cache beside it, and A comes from beyond once for a block, not for a panel.
inline constexpr Index kRowsAtATime = 32 * simd::kMicroRows;
/// Rows of A that are not worth packing B for: a token that is being generated.
inline constexpr Index kFewRows = 2;

inline void tally(Index m, Index n, Index k) {
  count_multiply_adds(static_cast<std::uint64_t>(m * n * k));
}

/// A matrix as the kernels see it: element (i, j) at data[i * row + j * column], where one of the
/// two distances is 1.
struct Operand {
  const Real* data;
  Index row, column;
};

inline Real* scratch(std::size_t size) {
  thread_local AlignedVector<Real> buffer;
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

/// C[m, n] for the columns [begin, end).
template <class Pack>
void multiply(Index m, Index k, Operand a, const Pack& pack, Index begin, Index end, Real* c,
              Index ldc, Start start) {
  const simd::Kernels& kernels = simd::kernels();
  const Index widest = block_columns();
  Real* packed = scratch(static_cast<std::size_t>(kBlockDepth * widest + m * kernels.vector));
  blocked_product(
      m, k, kBlockDepth, begin, end, widest, kernels.vector, c, ldc, start,
      packed + kBlockDepth * widest,
      [&](Index p, Index depth, Index j, Index columns, Real* to, Index ld, Start from) {
        pack(p, depth, j, columns, packed);
        const simd::Panels panels{packed, depth, simd::padded(kernels, columns)};
        for (Index i = 0; i < m; i += kRowsAtATime) {
          const Index count = std::min(kRowsAtATime, m - i);
          const Real* rows = a.data + i * a.row + p * a.column;
          Real* sums = to + i * ld;
          kernels.product(count, panels.columns, depth, rows, a.row, a.column, panels, 0, sums, ld,
                          from.keep());
        }
      });
}

/// On the calling thread.
template <class Pack>
void multiply_serial(Index m, Index n, Index k, Operand a, const Pack& pack, Real* c, Index ldc,
                     Start start) {
  tally(m, n, k);
  if (k == 0) return fill(m, n, c, ldc, start);
  multiply(m, k, a, pack, 0, n, c, ldc, start);
}

/// On all threads, where the product is worth waking them for.
template <class Pack>
void multiply_parallel(Index m, Index n, Index k, Operand a, const Pack& pack, Real* c, Index ldc,
                       Start start) {
  if (m * n * k <= 1 << 20) return multiply_serial(m, n, k, a, pack, c, ldc, start);
  tally(m, n, k);
  for_blocks(m, n, [&](Index i, Index rows, Index begin, Index end) {
    multiply(rows, k, {a.data + i * a.row, a.row, a.column}, pack, begin, end, c + i * ldc, ldc,
             start);
  });
}

}  // namespace focus::packed
