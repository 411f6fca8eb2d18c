#pragma once

#include "autograd/base/parallel.h"
#include "autograd/gemm/matrix_view.h"
#include "autograd/gemm/packed_product.h"

namespace focus {

/// C[m, rows] = start + A Wᵀ for few rows of A and a W in blocks, each of which is multiplied as it
/// is unpacked: dot(blocks of a row of W, how many, i) is the product with A's row i.
template <class Dot>
void multiply_rows_of_blocks(Index m, const MatrixView& w, Real* c, Index ldc, Start start,
                             Dot&& dot) {
  const auto pitch = static_cast<Index>(bytes_of(w.format, w.pitch));
  const Index blocks = w.cols / block_numbers(w.format);
  const Index run = packed::rows_of_thread(w.rows, rows_per_chunk(w.cols));
  parallel_chunks(w.rows, run, [&](Index begin, Index end) {
    for (Index j = begin; j < end; ++j) {
      const auto* row = static_cast<const std::uint8_t*>(w.data) + w.stored_row(j) * pitch;
      for (Index i = 0; i < m; ++i) {
        const Real product = dot(row, blocks, i);
        Real& to = c[i * ldc + j];
        to = start.add ? to + product : start.in_column(j) + product;
      }
    }
  });
}

}  // namespace focus
