#include <omp.h>

#include <Eigen/Core>
#include <algorithm>

#include "bench/gemm_peers.h"

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;

void multiply(long m, long k, long n, bool transposed, const float* a, const float* b, float* c) {
  const ConstMap left(a, m, k);
  Eigen::Map<Matrix> product(c, m, n);
  if (transposed)
    product.noalias() = left * ConstMap(b, n, k).transpose();
  else
    product.noalias() = left * ConstMap(b, k, n);
}

}  // namespace

/// With Eigen's own threads, or (row_chunks) one-thread products of equal runs of rows: the form
/// whose bits do not depend on how many threads there are, were the runs of a fixed size.
FOCUS_EIGEN_PEER(FOCUS_EIGEN_NAME) {
  if (!row_chunks) {
    Eigen::setNbThreads(threads);
    return multiply(m, k, n, transposed, a, b, c);
  }
  Eigen::setNbThreads(1);
  const long rows = (m + threads - 1) / threads;
#pragma omp parallel for num_threads(threads)
  for (long begin = 0; begin < m; begin += rows)
    multiply(std::min(rows, m - begin), k, n, transposed, a + begin * k, b, c + begin * n);
}
