#include "autograd/gemm/bf16.h"

#include <algorithm>
#include <vector>

#include "autograd/base/aligned_vector.h"
#include "autograd/gemm/blocked_product.h"
#include "autograd/gemm/gemm.h"
#include "autograd/gemm/packed_product.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Rows of B that are packed at a time: a hidden size of 768 at once, 384 KB of a second-level
/// cache of 1 MiB.
constexpr Index kBf16BlockDepth = 768;

/// A block of a product: rows [row, row + rows) of A and [p, p + depth) of B, columns
/// [j, j + columns), `padded` to whole vectors, onto C[rows, padded] at `c`.
struct ProductBlock {
  Index row, rows, p, depth, j, columns, padded;
  Real* c;
  Index ldc;
  Start start;
};

/// C[m, n] over a depth of k: `block(ProductBlock, packed)` packs and multiplies; `packed` has room
/// for `block_depth` rows.
template <class Block>
void multiply(Index m, Index n, Index k, Index block_depth, Real* c, Index ldc, Start start,
              const simd::Bf16Kernels& kernels, const Block& block) {
  count_multiply_adds(static_cast<std::uint64_t>(m * n * k));
  if (k == 0) return fill(m, n, c, ldc, start);
  for_blocks(m, n, [&](Index row, Index rows, Index begin, Index end) {
    thread_local AlignedVector<Real> scratch;
    const Index widest = block_columns();
    scratch.resize(static_cast<std::size_t>(block_depth * widest + rows * kernels.vector));
    Real* packed = scratch.data();
    blocked_product(
        rows, k, block_depth, begin, end, widest, kernels.vector, c + row * ldc, ldc, start,
        packed + block_depth * widest,
        [&](Index p, Index depth, Index j, Index columns, Real* to, Index ld, Start from) {
          const Index padded = (columns + kernels.vector - 1) / kernels.vector * kernels.vector;
          block(ProductBlock{row, rows, p, depth, j, columns, padded, to, ld, from}, packed);
        });
  });
}

/// block.c = from + rows B, B packed.
void block_product(const simd::Bf16Kernels& kernels, const ProductBlock& block, const Bf16* rows,
                   Index pitch, const Real* packed, Start from) {
  const simd::Bf16Panels panels{packed, block.depth, block.padded};
  if (from.row != nullptr)
    kernels.product_from(block.rows, block.padded, block.depth, rows, pitch, panels, block.c,
                         block.ldc, from.row);
  else
    kernels.product(block.rows, block.padded, block.depth, rows, pitch, panels, block.c, block.ldc,
                    from.add);
}

/// C[m, n] = start + A[m, k] B; `pack(p, depth, j, columns, packed)` packs B's rows [p, p + depth),
/// columns [j, j + columns).
template <class Pack>
void multiply_rounded(const Bf16Matrix& a, Index n, Real* c, Index ldc, Start start,
                      const simd::Bf16Kernels& kernels, const Pack& pack) {
  multiply(a.rows(), n, a.cols(), kBf16BlockDepth, c, ldc, start, kernels,
           [&](const ProductBlock& b, Real* packed) {
             pack(b.p, b.depth, b.j, b.columns, packed);
             block_product(kernels, b, a.row(b.row) + b.p, a.pitch(), packed, b.start);
           });
}

/// C = start + A B for rounded matrices.
void multiply_rounded(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start,
                      const simd::Bf16Kernels& kernels) {
  multiply_rounded(a, b.cols(), c, ldc, start, kernels,
                   [&](Index p, Index depth, Index j, Index columns, void* packed) {
                     kernels.pack(b.row(p) + j, b.pitch(), depth, columns, packed);
                   });
}

Index even(Index n) { return (n + 1) / 2 * 2; }

/// Rows of the transpose of a tall matrix are read several at a time; where all began at the same
/// place of a page they would have one set of the first-level cache.
Index spread_pitch(Index n) { return even(n) + (n % 256 == 0 ? 32 : 0); }

/// Rows that are transposed at a time: of each column's, two cache lines are written.
constexpr Index kTransposedRows = 64;

/// Rows of numbers split into two, each part in rows that fill up to an even length with zero.
class SplitBf16Rows {
 public:
  SplitBf16Rows(Index rows, Index cols, Bf16* memory)
      : cols_(cols), pitch_(even(cols)), high_(memory), low_(memory + rows * pitch_) {}
  static std::size_t numbers(Index rows, Index cols) {
    return static_cast<std::size_t>(2 * rows * even(cols));
  }

  void put(Index i, const Real* row) {
    simd::kernels().split_bf16(row, cols_, high_ + i * pitch_, low_ + i * pitch_);
    if (pitch_ > cols_) high_[i * pitch_ + cols_] = low_[i * pitch_ + cols_] = 0;
  }
  Index pitch() const { return pitch_; }
  const Bf16* high(Index i = 0) const { return high_ + i * pitch_; }
  const Bf16* low(Index i = 0) const { return low_ + i * pitch_; }

 private:
  Index cols_, pitch_;
  Bf16 *high_, *low_;
};

/// Rows of B that are split and packed at a time: both parts and their panels are 0.8 of the
/// second-level cache.
constexpr Index kSplitDepth = 512;

/// The block's numbers, line by line; valid until the thread's next call.
SplitBf16Rows split_block(const MatrixView& w, const StoredPart& part) {
  thread_local AlignedVector<Real> line;
  thread_local AlignedVector<Bf16> memory;
  line.resize(static_cast<std::size_t>(part.count));
  memory.resize(std::max(memory.size(), SplitBf16Rows::numbers(part.lines, part.count)));
  SplitBf16Rows split(part.lines, part.count, memory.data());
  for (Index i = 0; i < part.lines; ++i) {
    read_part(w, {part.line + i, 1, part.first, part.count}, line.data());
    split.put(i, line.data());
  }
  return split;
}

/// C[m, n] = start + A[m, k] B for B = W or Wᵀ. The small products are added first.
void multiply_split(Index m, Index n, Index k, const Real* a, Index lda, const MatrixView& w,
                    bool transposed, Real* c, Index ldc, Start start,
                    const simd::Bf16Kernels& kernels) {
  const std::shared_ptr<void> memory = pooled_buffer(SplitBf16Rows::numbers(m, k) * sizeof(Bf16));
  SplitBf16Rows rows(m, k, static_cast<Bf16*>(memory.get()));
  parallel_chunks(m, rows_per_chunk(k), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) rows.put(i, a + i * lda);
  });
  const bool exact = w.format == NumberFormat::bf16;  // nothing is left of W's numbers
  multiply(m, n, k, kSplitDepth, c, ldc, start, kernels, [&](const ProductBlock& b, Real* packed) {
    const StoredBlock stored = block_of(w, transposed, b.p, b.depth, b.j, b.columns);
    const SplitBf16Rows split = split_block(w, stored.part);
    const auto pack = [&](const Bf16* source) {
      if (stored.lines_are_rows)
        kernels.pack(source, split.pitch(), b.depth, b.columns, packed);
      else
        kernels.pack_transposed(source, split.pitch(), b.columns, b.depth, packed);
    };
    const auto product = [&](const Bf16* of_a, Start from) {
      block_product(kernels, b, of_a + b.p, rows.pitch(), packed, from);
    };
    if (!exact) {
      pack(split.low());
      product(rows.high(b.row), b.start);
    }
    pack(split.high());
    product(rows.low(b.row), exact ? b.start : Start(Into::add));
    product(rows.high(b.row), Into::add);
  });
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
  Bf16Matrix result(cols(), rows(), spread_pitch(rows()));
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
    std::vector<Real> rows(static_cast<std::size_t>((end - begin) * view.cols));
    read_rows(view, begin, end - begin, rows.data());
    for (Index i = begin; i < end; ++i)
      kernels.round(rows.data() + (i - begin) * view.cols, view.cols, own_row(i));
  });
}

void gemm_nt(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start,
             const simd::Bf16Kernels& kernels) {
  multiply_rounded(a, b.rows(), c, ldc, start, kernels,
                   [&](Index p, Index depth, Index j, Index columns, void* packed) {
                     kernels.pack_transposed(b.row(j) + p, b.pitch(), columns, depth, packed);
                   });
}

void gemm(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start,
          const simd::Bf16Kernels& kernels) {
  multiply_rounded(a, b, c, ldc, start, kernels);
}

void gemm_tn(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start,
             const simd::Bf16Kernels& kernels) {
  multiply_rounded(a.transposed(kernels), b, c, ldc, start, kernels);
}

void gemm_nt_bf16x3(Index m, const Real* a, Index lda, const MatrixView& w, Real* c, Index ldc,
                    Start start, const simd::Bf16Kernels* kernels) {
  if (kernels == nullptr || m <= packed::kFewRows) return gemm_nt(m, a, lda, w, c, ldc, start);
  multiply_split(m, w.rows, w.cols, a, lda, w, true, c, ldc, start, *kernels);
}

void gemm_bf16x3(Index m, const Real* a, Index lda, const MatrixView& w, Real* c, Index ldc,
                 Start start, const simd::Bf16Kernels* kernels) {
  if (kernels == nullptr || m <= packed::kFewRows) return gemm(m, a, lda, w, c, ldc, start);
  multiply_split(m, w.cols, w.rows, a, lda, w, false, c, ldc, start, *kernels);
}

}  // namespace focus
