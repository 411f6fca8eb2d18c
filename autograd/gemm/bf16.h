#pragma once

#include <bit>
#include <memory>

#include "autograd/gemm/gemm.h"
#include "autograd/gemm/matrix_view.h"
#include "autograd/simd/bf16_kernels.h"
#include "autograd/tensor.h"

// Weights in bf16: half the memory where they are frozen, and faster products where the machine has
// AVX512_BF16. Both operands of a product are rounded to bf16, the sums are Real.
namespace focus {

/// The nearest bf16, ties to even; NaN stays NaN.
inline Bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<Bf16>(bits >> 16 | 0x40);  // quiet, whatever was cut off
  return static_cast<Bf16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float from_bf16(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

/// A row-major matrix of bf16 numbers that never changes; copies share it. Rows lie `pitch` apart:
/// the columns rounded up to even, filled up with zero.
class Bf16Matrix {
 public:
  /// values[rows, cols] with rows of `ld` numbers, rounded.
  Bf16Matrix(Index rows, Index cols, const Real* values, Index ld,
             const simd::Bf16Kernels& kernels = simd::bf16_kernels());
  /// The numbers of a view: where they lie if they are bf16 in rows of an even length, which
  /// `owner` holds; else rounded.
  Bf16Matrix(const MatrixView& view, std::shared_ptr<const void> owner);

  const Shape& shape() const { return shape_; }
  Index rows() const { return shape_[0]; }
  Index cols() const { return shape_[1]; }
  Index pitch() const { return pitch_; }
  const Bf16* row(Index i) const { return data_ + i * pitch_; }
  Bf16Matrix transposed(const simd::Bf16Kernels& kernels = simd::bf16_kernels()) const;

 private:
  /// Room for a matrix of that shape; contents undefined but for what fills up rows.
  Bf16Matrix(Index rows, Index cols, Index pitch);
  Bf16* own_row(Index i) { return static_cast<Bf16*>(own_.get()) + i * pitch_; }

  std::shared_ptr<void> own_;          // null where the numbers lie elsewhere
  std::shared_ptr<const void> owner_;  // of them there; else null
  const Bf16* data_ = nullptr;
  Shape shape_;
  Index pitch_ = 0;
};

/// C = start + A Bᵀ. The bits of this product and the others do not depend on the number of
/// threads.
void gemm_nt(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start = {},
             const simd::Bf16Kernels& kernels = simd::bf16_kernels());
/// The same for a W whose numbers are rounded on their way into the kernels.
void gemm_nt(const Bf16Matrix& a, const MatrixView& w, Real* c, Index ldc, Start start = {},
             const simd::Bf16Kernels& kernels = simd::bf16_kernels());
/// C = start + A B
void gemm(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start = {},
          const simd::Bf16Kernels& kernels = simd::bf16_kernels());
/// C = start + Aᵀ B
void gemm_tn(const Bf16Matrix& a, const Bf16Matrix& b, Real* c, Index ldc, Start start = {},
             const simd::Bf16Kernels& kernels = simd::bf16_kernels());

/// The same for numbers that are rounded on the way: C[m, rows] = A[m, cols] Bᵀ.
inline void gemm_nt(Index m, const Real* a, Index lda, const Bf16Matrix& b, Real* c, Index ldc,
                    Start start = {}, const simd::Bf16Kernels& kernels = simd::bf16_kernels()) {
  gemm_nt(Bf16Matrix(m, b.cols(), a, lda, kernels), b, c, ldc, start, kernels);
}
/// C[m, cols] = A[m, rows] B
inline void gemm(Index m, const Real* a, Index lda, const Bf16Matrix& b, Real* c, Index ldc,
                 Start start = {}, const simd::Bf16Kernels& kernels = simd::bf16_kernels()) {
  gemm(Bf16Matrix(m, b.rows(), a, lda, kernels), b, c, ldc, start, kernels);
}

}  // namespace focus
