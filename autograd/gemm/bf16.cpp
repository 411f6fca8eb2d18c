#include "autograd/gemm/bf16.h"

#include <algorithm>

#include "autograd/base/aligned_vector.h"
#include "autograd/gemm/packed_product.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Rows of B that are packed at a time: a hidden size of 768 at once, 384 KB of a second-level
/// cache of 1 MiB.
constexpr Index kBf16BlockDepth = 768;

/// C[m, n] = start + A[m, k] B; `pack(p, depth, j, columns, packed)` packs B's rows [p, p + depth),
/// columns [j, j + columns).
template <class Pack>
void multiply_rounded(const Bf16Matrix& a, Index n, Real* c, Index ldc, Start start,
                      const simd::Bf16Kernels& kernels, const Pack& pack) {
  const Index m = a.rows(), k = a.cols(), vector = kernels.vector;
  count_multiply_adds(static_cast<std::uint64_t>(m * n * k));
  if (k == 0) return fill(m, n, c, ldc, start);
  for_blocks(m, n, [&](Index row, Index rows, Index begin, Index end) {
    thread_local AlignedVector<Real> scratch;
    const Index widest = block_columns();
    scratch.resize(kBf16BlockDepth * widest + rows * vector);
    Real* packed = scratch.data();
    blocked_product(
        rows, k, kBf16BlockDepth, begin, end, widest, vector, c + row * ldc, ldc, start,
        packed + kBf16BlockDepth * widest,
        [&](Index p, Index depth, Index j, Index columns, Real* to, Index ld, Start from) {
          pack(p, depth, j, columns, packed);
          const Index padded = (columns + vector - 1) / vector * vector;
          const simd::Bf16Panels panels{packed, depth, padded};
          const Bf16* of_a = a.row(row) + p;
          kernels.product(rows, padded, depth, of_a, a.pitch(), panels, to, ld, from.keep());
        });
  });
}

Index even(Index n) { return (n + 1) / 2 * 2; }

/// to[count, pitch] = rows [first, first + count) of a view, rounded; zero fills them up.
void round_rows(const MatrixView& view, Index first, Index count, Bf16* to, Index pitch,
                const simd::Bf16Kernels& kernels) {
  thread_local AlignedVector<Real> rows;
  const Index together = std::min(count, rows_at_a_time(view));
  rows.resize(together * view.cols);
  for (Index i = 0; i < count; ++i, to += pitch) {
    if (i % together == 0) read_rows(view, first + i, std::min(together, count - i), rows.data());
    kernels.round(rows.data() + i % together * view.cols, view.cols, to);
    std::fill(to + view.cols, to + pitch, Bf16{0});
  }
}

}  // namespace

Bf16Matrix::Bf16Matrix(Index rows, Index cols, Index pitch)
    : own_(pooled_buffer(static_cast<std::size_t>(rows * pitch) * sizeof(Bf16))),
      data_(static_cast<const Bf16*>(own_.get())),
      shape_{rows, cols},
      pitch_(pitch) {
  if (cols % 2 == 1)
    for (Index i = 0; i < rows; ++i) own_row(i)[cols] = 0;
}

Bf16Matrix::Bf16Matrix(Index rows, Index cols, const Real* values, Index ld,
                       const simd::Bf16Kernels& kernels)
    : Bf16Matrix(rows, cols, even(cols)) {
  parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) kernels.round(values + i * ld, cols, own_row(i));
  });
}

Bf16Matrix Bf16Matrix::transposed(const simd::Bf16Kernels& kernels) const {
  // Rows of the transpose of a tall matrix are read several at a time; where all began at the same
  // place of a page they would have one set of the first-level cache.
  Bf16Matrix result(cols(), rows(), even(rows()) + (rows() % 256 == 0 ? 32 : 0));
  constexpr Index kTransposedRows = 64;  // at a time: of each column's, two cache lines are written
  parallel_chunks(rows(), kTransposedRows, [&](Index begin, Index end) {
    kernels.transpose(row(begin), pitch(), end - begin, cols(), result.own_row(0) + begin,
                      result.pitch());
  });
  return result;
}

Bf16Matrix::Bf16Matrix(const MatrixView& view, std::shared_ptr<const void> owner) {
  const bool as_it_lies = view.format == NumberFormat::bf16 && !view.transposed &&
                          view.in_order() && view.cols % 2 == 0 && view.pitch % 2 == 0;
  if (as_it_lies) {
    owner_ = std::move(owner);
    data_ = static_cast<const Bf16*>(view.data);
    shape_ = {view.rows, view.cols};
    pitch_ = view.pitch;
    return;
  }
  *this = Bf16Matrix(view.rows, view.cols, even(view.cols));
  const simd::Bf16Kernels& kernels = simd::bf16_kernels();
  parallel_chunks(view.rows, rows_at_a_time(view), [&](Index begin, Index end) {
    round_rows(view, begin, end - begin, own_row(begin), pitch_, kernels);
  });
}

void gemm_nt(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start,
             const simd::Bf16Kernels& kernels) {
  multiply_rounded(a, b.rows(), c, ldc, start, kernels,
                   [&](Index p, Index depth, Index j, Index columns, void* packed) {
                     kernels.pack_transposed(b.row(j) + p, b.pitch(), columns, depth, packed);
                   });
}

void gemm_nt(const Bf16Matrix& a, const MatrixView& w, Real* c, Index ldc, Start start,
             const simd::Bf16Kernels& kernels) {
  multiply_rounded(a, w.rows, c, ldc, start, kernels,
                   [&](Index p, Index depth, Index j, Index columns, void* packed) {
                     thread_local AlignedVector<Bf16> rounded;
                     const Index pitch = even(depth);
                     rounded.resize(columns * pitch);
                     MatrixView part = from_number(w, w.transposed ? p * w.pitch : p);
                     part.cols = depth;
                     round_rows(part, j, columns, rounded.data(), pitch, kernels);
                     kernels.pack_transposed(rounded.data(), pitch, columns, depth, packed);
                   });
}

void gemm(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start,
          const simd::Bf16Kernels& kernels) {
  multiply_rounded(a, b.cols(), c, ldc, start, kernels,
                   [&](Index p, Index depth, Index j, Index columns, void* packed) {
                     kernels.pack(b.row(p) + j, b.pitch(), depth, columns, packed);
                   });
}

void gemm_tn(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start,
             const simd::Bf16Kernels& kernels) {
  gemm(a.transposed(kernels), b, c, ldc, start, kernels);
}

}  // namespace focus
