#pragma once

#include <algorithm>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/matrix_view.h"
#include "autograd/simd/kernels.h"

// How a product is cut into blocks, whatever its numbers are stored in.
namespace focus {

/// Columns of B that are packed at a time, for a second-level cache of so many bytes (0: unknown):
/// 256 for 1 MiB, of which 256 rows of floats take a quarter, and in proportion. A wider block
/// reads A fewer times; one that is too wide leaves the cache before A's rows have gone over it.
Index block_columns(std::size_t second_level);
/// The same for this machine, asked once.
Index block_columns();
/// Rows of A that share a packed block: enough to make its packing cheap.
inline constexpr Index kBlockRows = 1024;
/// Blocks that are worth having, so that all threads end at about the same time: where there would
/// be fewer, they are half as wide.
inline constexpr Index kEnoughBlocks = 16;
/// Where so few remain, for want of columns, rows are cut too, into blocks of at least so many.
inline constexpr Index kFewBlocks = 4;
inline constexpr Index kFewestRows = 120;

/// Deals C[m, n] out on all threads in blocks: f(first row, rows, first column, end of columns).
template <class F>
void for_blocks(Index m, Index n, F&& f) {
  const auto blocks = [](Index size, Index block) { return (size + block - 1) / block; };
  Index row_blocks = blocks(m, kBlockRows);
  const Index widest = block_columns();
  const Index columns = row_blocks * blocks(n, widest) < kEnoughBlocks ? widest / 2 : widest;
  if (row_blocks * blocks(n, columns) < kFewBlocks)
    row_blocks = std::max(row_blocks, std::min(kEnoughBlocks, m / kFewestRows));
  // Rows are shared out evenly, in whole steps of the micro-kernel.
  const Index rows = blocks(blocks(m, row_blocks), simd::kMicroRows) * simd::kMicroRows;
  parallel_chunks(row_blocks * blocks(n, columns), 1, [&](Index task, Index) {
    const Index i = task % row_blocks * rows, j = task / row_blocks * columns;
    if (i < m) f(i, std::min(rows, m - i), j, std::min(n, j + columns));
  });
}

/// What a product of depth 0 makes of C[m, n].
inline void fill(Index m, Index n, Real* c, Index ldc, Start start) {
  for (Index i = 0; i < m && !start.add; ++i)
    for (Index j = 0; j < n; ++j) c[i * ldc + j] = start.in_column(j);
}

/// C[m, n] for the columns [begin, end) and a depth of k, on the calling thread, `widest` columns
/// of B at a time. `block(p, depth, j, columns, c, ldc, start)` packs B's rows [p, p + depth),
/// columns [j, j + columns) and multiplies; it writes whole vectors of `vector` numbers, so what
/// would run over the end goes through `tail` [m, vector]. No number of C depends on how rows and
/// columns were dealt out: each is one chain of additions over k, in blocks of `block_depth`.
template <class Block>
void blocked_product(Index m, Index k, Index block_depth, Index begin, Index end, Index widest,
                     Index vector, Real* c, Index ldc, Start start, Real* tail, Block&& block) {
  const Index whole = begin + (end - begin) / vector * vector;
  for (Index p = 0; p < k; p += block_depth) {
    const Index depth = std::min(block_depth, k - p);
    for (Index j = begin; j < whole; j += widest)
      block(p, depth, j, std::min(widest, whole - j), c + j, ldc,
            p > 0 ? Start(Into::add) : start.from_column(j));
  }
  if (whole == end) return;
  for (Index p = 0; p < k; p += block_depth)
    block(p, std::min(block_depth, k - p), whole, end - whole, tail, vector,
          p > 0 ? Start(Into::add) : Start());
  for (Index i = 0; i < m; ++i)
    for (Index j = whole; j < end; ++j) {
      const Real sum = tail[i * vector + j - whole];
      c[i * ldc + j] = start.add ? c[i * ldc + j] + sum : start.in_column(j) + sum;
    }
}

namespace packed {
/// Rows of A that are not worth packing B for: a token that is being generated, or a few. Each has
/// the bits that it has alone.
inline constexpr Index kFewRows = 8;
}  // namespace packed

/// Products of few rows of A with matrices in blocks, each of which is multiplied as it is
/// unpacked: dot_of(product)(blocks of a row of W, how many, sums) makes those with A's rows. The
/// rows of all matrices are one job for the threads.
template <class DotOf>
void multiply_rows_of_blocks(Index m, std::span<const SharedProduct> products, DotOf&& dot_of) {
  Index all_rows = 0;
  for (const SharedProduct& product : products) all_rows += product.w.rows;
  parallel_runs(all_rows, rows_per_chunk(products.front().w.cols), [&](Index begin, Index end) {
    Index before = 0;  // rows of the matrices before
    for (const SharedProduct& product : products) {
      const auto [w, c, ldc, start] = product;  // in registers, whatever c's stores may change
      const auto pitch = static_cast<Index>(bytes_of(w.format, w.pitch));
      const Index blocks = w.cols / block_numbers(w.format);
      const auto dot = dot_of(product);
      for (Index j = std::max<Index>(0, begin - before); j < std::min(w.rows, end - before); ++j) {
        const auto* row = static_cast<const std::uint8_t*>(w.data) + w.stored_row(j) * pitch;
        Real sums[packed::kFewRows];
        dot(row, blocks, sums);
        for (Index i = 0; i < m; ++i) {
          const Real sum = sums[i];
          Real& to = c[i * ldc + j];
          to = start.add ? to + sum : start.in_column(j) + sum;
        }
      }
      before += w.rows;
    }
  });
}

// The product behind gemm(), whatever its right-hand side is stored in: `pack(p, depth, j, columns,
// packed)` puts B's rows [p, p + depth), columns [j, j + columns) into panels of Real. What a
// number of C is the sum of, and in which order, is decided here alone.
namespace packed {

/// Rows of B that are packed at a time: with block_columns() a quarter of a core's second-level
/// cache, which holds beside it the rows of A that go over it.
inline constexpr Index kBlockDepth = 256;
/// Rows of A that go over all of a packed block before the next do: these and their sums stay in
/// the second-level cache beside it, and A comes from beyond once for a block, not for a panel.
inline constexpr Index kRowsAtATime = 32 * simd::kMicroRows;
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

}  // namespace packed
}  // namespace focus
