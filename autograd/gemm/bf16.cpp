#include "autograd/gemm/bf16.h"

#include <algorithm>
#include <vector>

#include "autograd/gemm/blocked_product.h"
#include "autograd/gemm/gemm.h"

namespace focus {
namespace {

/// Rows of B that are packed at a time: a hidden size of 768 at once, 384 KB.
constexpr Index kBlockDepth = 768;

/// C[m, n] = A[m, k] B; `pack(p, depth, j, columns, packed)` packs B's rows [p, p + depth),
/// columns [j, j + columns).
template <class Pack>
void multiply(Index m, Index n, Index k, const Real* a, Index lda, Real* c, Index ldc,
              const simd::Bf16Kernels& kernels, Pack&& pack) {
  count_multiply_adds(static_cast<std::uint64_t>(m * n * k));
  if (k == 0)
    for (Index i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, Real(0));
  const Bf16Matrix rounded(m, k, a, lda, kernels);
  for_blocks(m, n, [&](Index row, Index rows, Index begin, Index end) {
    thread_local std::vector<Real> scratch;
    scratch.resize(static_cast<std::size_t>(kBlockDepth * kBlockColumns + rows * kernels.vector));
    Real* packed = scratch.data();
    blocked_product(
        rows, k, kBlockDepth, begin, end, kernels.vector, c + row * ldc, ldc, false,
        packed + kBlockDepth * kBlockColumns,
        [&](Index p, Index depth, Index j, Index columns, Real* to, Index ld, bool add) {
          pack(p, depth, j, columns, packed);
          const Index padded = (columns + kernels.vector - 1) / kernels.vector * kernels.vector;
          kernels.product(rows, padded, depth, rounded.row(row) + p, rounded.pitch(), packed, to,
                          ld, add);
        });
  });
}

}  // namespace

Bf16Matrix::Bf16Matrix(Index rows, Index cols)
    : own_(pooled_buffer(static_cast<std::size_t>(rows * ((cols + 1) / 2 * 2)) * sizeof(Bf16))),
      data_(static_cast<const Bf16*>(own_.get())),
      shape_{rows, cols},
      pitch_((cols + 1) / 2 * 2) {
  if (pitch_ > cols)
    for (Index i = 0; i < rows; ++i) own_row(i)[cols] = 0;
}

Bf16Matrix::Bf16Matrix(Index rows, Index cols, const Real* values, Index ld,
                       const simd::Bf16Kernels& kernels)
    : Bf16Matrix(rows, cols) {
  parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) kernels.round(values + i * ld, cols, own_row(i));
  });
}

Bf16Matrix::Bf16Matrix(const MatrixView& view, std::shared_ptr<const void> owner) {
  const bool as_it_lies = view.format == NumberFormat::bf16 && !view.transposed && !view.runs() &&
                          view.cols % 2 == 0 && view.pitch % 2 == 0;
  if (as_it_lies) {
    owner_ = std::move(owner);
    data_ = static_cast<const Bf16*>(view.data);
    shape_ = {view.rows, view.cols};
    pitch_ = view.pitch;
    return;
  }
  *this = Bf16Matrix(view.rows, view.cols);
  const simd::Bf16Kernels& kernels = simd::bf16_kernels();
  parallel_chunks(view.rows, rows_at_a_time(view), [&](Index begin, Index end) {
    std::vector<Real> rows(static_cast<std::size_t>((end - begin) * view.cols));
    read_rows(view, begin, end - begin, rows.data());
    for (Index i = begin; i < end; ++i)
      kernels.round(rows.data() + (i - begin) * view.cols, view.cols, own_row(i));
  });
}

void gemm_nt(Index m, const Real* a, Index lda, const Bf16Matrix& b, Real* c, Index ldc,
             const simd::Bf16Kernels& kernels) {
  multiply(m, b.rows(), b.cols(), a, lda, c, ldc, kernels,
           [&](Index p, Index depth, Index j, Index columns, void* packed) {
             kernels.pack_transposed(b.row(j) + p, b.pitch(), columns, depth, packed);
           });
}

void gemm(Index m, const Real* a, Index lda, const Bf16Matrix& b, Real* c, Index ldc,
          const simd::Bf16Kernels& kernels) {
  multiply(m, b.cols(), b.rows(), a, lda, c, ldc, kernels,
           [&](Index p, Index depth, Index j, Index columns, void* packed) {
             kernels.pack(b.row(p) + j, b.pitch(), depth, columns, packed);
           });
}

}  // namespace focus
