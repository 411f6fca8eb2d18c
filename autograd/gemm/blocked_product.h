#pragma once

#include <algorithm>
#include <cstddef>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
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

}  // namespace focus
