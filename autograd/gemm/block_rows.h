#pragma once

#include <algorithm>

#include "autograd/base/parallel.h"
#include "autograd/gemm/matrix_view.h"
#include "autograd/gemm/packed_product.h"

namespace focus {

/// Products of few rows of A with matrices in blocks, each of which is multiplied as it is
/// unpacked: dot_of(product)(blocks of a row of W, how many, i) is that with A's row i. The rows of
/// all matrices are one job for the threads.
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
        for (Index i = 0; i < m; ++i) {
          const Real sum = dot(row, blocks, i);
          Real& to = c[i * ldc + j];
          to = start.add ? to + sum : start.in_column(j) + sum;
        }
      }
      before += w.rows;
    }
  });
}

}  // namespace focus
