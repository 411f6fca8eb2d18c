#include "autograd/ops/sum_rows.h"

#include "autograd/base/parallel.h"
#include "autograd/simd/kernels.h"

namespace focus {

Tensor sum_rows(const Tensor& x, const Shape& shape) {
  constexpr Index kRows = 32;  // of a chunk
  const Index rows = x.rows(), cols = x.cols();
  if (rows == 0) return Tensor::zeros(shape);
  Tensor sums({(rows + kRows - 1) / kRows, cols});
  parallel_chunks(rows, kRows, [&, out = sums.data()](Index begin, Index end) {
    simd::kernels().elementwise.sum_rows(x.data() + begin * cols, end - begin, cols,
                                         out + begin / kRows * cols);
  });
  return sums.rows() == 1 ? sums.reshape(shape) : sum_rows(sums, shape);
}

}  // namespace focus
