#include "autograd/gemm/gemm.h"

#include <atomic>
#include <vector>

#include "autograd/gemm/blocked_product.h"
#include "autograd/parallel.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Rows of B that are packed at a time: with kBlockColumns 256 KB of floats, which a core's
/// second-level cache holds beside the rows of A that go over it.
constexpr Index kBlockDepth = 256;

std::atomic<std::uint64_t> counted{0};

void tally(Index m, Index n, Index k) {
  count_multiply_adds(static_cast<std::uint64_t>(m * n * k));
}

/// A matrix as the kernels see it: element (i, j) at data[i * row + j * column], where one of the
/// two distances is 1.
struct Operand {
  const Real* data;
  Index row, column;
};

Real* scratch(std::size_t size) {
  thread_local std::vector<Real> buffer;
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

/// Packs B's rows [p, p + depth), columns [j, j + columns).
simd::Panels pack_block(const simd::Kernels& kernels, const Operand& b, Index p, Index depth,
                        Index j, Index columns, Real* packed) {
  const Real* source = b.data + p * b.row + j * b.column;
  if (b.column == 1)
    kernels.pack(source, b.row, depth, columns, 1, packed);
  else
    kernels.pack_transposed(source, b.column, columns, depth, 1, packed);
  return {packed, depth, simd::padded(kernels, columns)};
}

/// C[m, n] for the columns [begin, end).
void multiply(Index m, Index k, Operand a, Operand b, Index begin, Index end, Real* c, Index ldc,
              Into into) {
  const simd::Kernels& kernels = simd::kernels();
  Real* packed =
      scratch(static_cast<std::size_t>(kBlockDepth * kBlockColumns + m * kernels.vector));
  blocked_product(m, k, kBlockDepth, begin, end, kernels.vector, c, ldc, into == Into::add,
                  packed + kBlockDepth * kBlockColumns,
                  [&](Index p, Index depth, Index j, Index columns, Real* to, Index ld, bool add) {
                    const simd::Panels panels =
                        pack_block(kernels, b, p, depth, j, columns, packed);
                    kernels.product(m, panels.columns, depth, a.data + p * a.column, a.row,
                                    a.column, panels, 0, to, ld, add);
                  });
}

void multiply_serial(Index m, Index n, Index k, Operand a, Operand b, Real* c, Index ldc,
                     Into into) {
  tally(m, n, k);
  if (k == 0 && into == Into::assign)
    for (Index i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, Real(0));
  multiply(m, k, a, b, 0, n, c, ldc, into);
}

/// Rows of A that are not worth packing B for: a token that is being generated.
constexpr Index kFewRows = 2;

/// C[m, n] for few rows of A, where the rows of Bᵀ are contiguous: one pass over B.
void multiply_rows(Index m, Index n, Index k, const Operand& a, const Operand& b, Real* c,
                   Index ldc, Into into) {
  tally(m, n, k);
  parallel_chunks(n, rows_per_chunk(k), [=](Index begin, Index end) {
    for (Index j = begin; j < end; ++j)
      for (Index i = 0; i < m; ++i) {
        const Real sum = simd::kernels().dot_row(a.data + i * a.row, b.data + j * b.column, k);
        c[i * ldc + j] = into == Into::add ? c[i * ldc + j] + sum : sum;
      }
  });
}

void multiply_parallel(Index m, Index n, Index k, Operand a, Operand b, Real* c, Index ldc,
                       Into into) {
  if (m <= kFewRows && a.column == 1 && b.row == 1)
    return multiply_rows(m, n, k, a, b, c, ldc, into);
  // A product too small to be worth waking the threads for.
  if (m * n * k <= 1 << 20) return multiply_serial(m, n, k, a, b, c, ldc, into);
  tally(m, n, k);
  for_blocks(m, n, [=](Index i, Index rows, Index begin, Index end) {
    multiply(rows, k, {a.data + i * a.row, a.row, a.column}, b, begin, end, c + i * ldc, ldc, into);
  });
}

}  // namespace

namespace serial {

void gemm(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
          Index ldc, Into into) {
  multiply_serial(m, n, k, {a, lda, 1}, {b, ldb, 1}, c, ldc, into);
}

void gemm_nt(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Into into) {
  multiply_serial(m, n, k, {a, lda, 1}, {b, 1, ldb}, c, ldc, into);
}

void gemm_tn(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Into into) {
  multiply_serial(m, n, k, {a, 1, lda}, {b, ldb, 1}, c, ldc, into);
}

}  // namespace serial

void gemm(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
          Index ldc, Into into) {
  multiply_parallel(m, n, k, {a, lda, 1}, {b, ldb, 1}, c, ldc, into);
}

void gemm_nt(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Into into) {
  multiply_parallel(m, n, k, {a, lda, 1}, {b, 1, ldb}, c, ldc, into);
}

void gemm_tn(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Into into) {
  multiply_parallel(m, n, k, {a, 1, lda}, {b, ldb, 1}, c, ldc, into);
}

std::uint64_t multiply_adds() { return counted.load(); }
void count_multiply_adds(std::uint64_t count) {
  counted.fetch_add(count, std::memory_order_relaxed);
}

}  // namespace focus
