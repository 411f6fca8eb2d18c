#include "autograd/gemm/gemm.h"

#include <atomic>

#include "autograd/base/parallel.h"
#include "autograd/gemm/packed_product.h"
#include "autograd/machine.h"

namespace focus {
namespace {

using packed::Operand;

std::atomic<std::uint64_t> counted{0};

/// Packs blocks of B.
auto packing(const Operand& b) {
  return [b](Index p, Index depth, Index j, Index columns, Real* panels) {
    const simd::Kernels& kernels = simd::kernels();
    const Real* source = b.data + p * b.row + j * b.column;
    if (b.column == 1)
      kernels.pack(source, b.row, depth, columns, 1, panels);
    else
      kernels.pack_transposed(source, b.column, columns, depth, 1, panels);
  };
}

/// C[m, n] for few rows of A, where the rows of Bᵀ are contiguous: one pass over B.
void multiply_rows(Index m, Index n, Index k, const Operand& a, const Operand& b, Real* c,
                   Index ldc, Start start) {
  packed::tally(m, n, k);
  parallel_runs(n, rows_per_chunk(k), [=](Index begin, Index end) {
    for (Index j = begin; j < end; ++j)
      for (Index i = 0; i < m; ++i) {
        const Real sum = simd::kernels().dot_row(a.data + i * a.row, b.data + j * b.column, k);
        c[i * ldc + j] = start.add ? c[i * ldc + j] + sum : start.in_column(j) + sum;
      }
  });
}

void multiply_parallel(Index m, Index n, Index k, Operand a, Operand b, Real* c, Index ldc,
                       Start start) {
  if (m <= packed::kFewRows && a.column == 1 && b.row == 1)
    return multiply_rows(m, n, k, a, b, c, ldc, start);
  packed::multiply_parallel(m, n, k, a, packing(b), c, ldc, start);
}

}  // namespace

namespace serial {

void gemm(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
          Index ldc, Start start) {
  packed::multiply_serial(m, n, k, {a, lda, 1}, packing({b, ldb, 1}), c, ldc, start);
}

void gemm_nt(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Start start) {
  packed::multiply_serial(m, n, k, {a, lda, 1}, packing({b, 1, ldb}), c, ldc, start);
}

void gemm_tn(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Start start) {
  packed::multiply_serial(m, n, k, {a, 1, lda}, packing({b, ldb, 1}), c, ldc, start);
}

}  // namespace serial

void gemm(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
          Index ldc, Start start) {
  multiply_parallel(m, n, k, {a, lda, 1}, {b, ldb, 1}, c, ldc, start);
}

void gemm_nt(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Start start) {
  multiply_parallel(m, n, k, {a, lda, 1}, {b, 1, ldb}, c, ldc, start);
}

void gemm_tn(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Start start) {
  multiply_parallel(m, n, k, {a, 1, lda}, {b, ldb, 1}, c, ldc, start);
}

std::uint64_t multiply_adds() { return counted.load(); }
void count_multiply_adds(std::uint64_t count) {
  counted.fetch_add(count, std::memory_order_relaxed);
}

Index block_columns(std::size_t second_level) {
  constexpr Index kUsual = 256;  // for 1 MiB
  if (second_level == 0) return kUsual;
  const Index quarters = static_cast<Index>(second_level / (std::size_t{256} << 10));
  // Whole panels of every kernel, also where blocks are halved.
  return std::clamp<Index>(quarters * (kUsual / 4) / 128 * 128, kUsual / 2, 2 * kUsual);
}

Index block_columns() {
  static const Index columns = block_columns(cache_bytes()[1]);
  return columns;
}

}  // namespace focus
