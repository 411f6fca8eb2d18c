#include "autograd/gemm.h"

#include <atomic>

#include "autograd/eigen.h"
#include "autograd/parallel.h"

namespace focus {
namespace {

using Stride = Eigen::OuterStride<>;
using In = Eigen::Map<const RowMatrix<Real>, Eigen::Unaligned, Stride>;
using Out = Eigen::Map<RowMatrix<Real>, Eigen::Unaligned, Stride>;

std::atomic<std::uint64_t> counted{0};

void count(Index m, Index n, Index k) {
  counted.fetch_add(static_cast<std::uint64_t>(m * n * k), std::memory_order_relaxed);
}

template <class Product>
void store(Out c, const Product& product, Into into) {
  if (into == Into::assign)
    c.noalias() = product;
  else
    c.noalias() += product;
}

/// Rows of C in a chunk. Eigen packs all of B once for each chunk: larger chunks pay that less
/// often, smaller ones share out short matrices.
Index row_chunk(Index m) { return m >= 1024 ? 256 : m >= 256 ? 128 : 64; }

}  // namespace

namespace serial {

void gemm(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
          Index ldc, Into into) {
  count(m, n, k);
  store(Out(c, m, n, Stride(ldc)), In(a, m, k, Stride(lda)) * In(b, k, n, Stride(ldb)), into);
}

void gemm_nt(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Into into) {
  count(m, n, k);
  store(Out(c, m, n, Stride(ldc)), In(a, m, k, Stride(lda)) * In(b, n, k, Stride(ldb)).transpose(),
        into);
}

void gemm_tn(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Into into) {
  count(m, n, k);
  store(Out(c, m, n, Stride(ldc)), In(a, k, m, Stride(lda)).transpose() * In(b, k, n, Stride(ldb)),
        into);
}

}  // namespace serial

void gemm(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
          Index ldc, Into into) {
  parallel_chunks(m, row_chunk(m), [=](Index begin, Index end) {
    serial::gemm(end - begin, n, k, a + begin * lda, lda, b, ldb, c + begin * ldc, ldc, into);
  });
}

void gemm_nt(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Into into) {
  parallel_chunks(m, row_chunk(m), [=](Index begin, Index end) {
    serial::gemm_nt(end - begin, n, k, a + begin * lda, lda, b, ldb, c + begin * ldc, ldc, into);
  });
}

void gemm_tn(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Into into) {
  parallel_chunks(m, row_chunk(m), [=](Index begin, Index end) {
    serial::gemm_tn(end - begin, n, k, a + begin, lda, b, ldb, c + begin * ldc, ldc, into);
  });
}

std::uint64_t multiply_adds() { return counted.load(); }

}  // namespace focus
