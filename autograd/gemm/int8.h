#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/gemm/matrix_view.h"
#include "autograd/simd/int8_kernels.h"

namespace focus {

/// A matrix rounded to int8, in memory of its own: number (i, j) is q scales[i], where scales[i] is
/// the largest magnitude of row i over 127 and q the nearest integer, ties to even. A row is an
/// output channel of a linear, or a token of an embedding; one of zeros has the scale 0.
struct Int8Matrix {
  MatrixView view;                    // rows, filled up with zero to a multiple of 4
  std::shared_ptr<const void> owner;  // of numbers and scales
};

/// Throws std::invalid_argument, naming the row and the weight (empty: "matrix"), where a number is
/// NaN or infinite: no scale could hold it beside the others. Bits do not depend on threads.
Int8Matrix rounded_to_int8(const MatrixView& from, const std::string& name = "");

/// The largest magnitude of a row; NaN or infinity where a number is.
Real largest_magnitude(const Real* row, Index n);
/// The scale for numbers of that largest magnitude; 0 where they are too small for one.
Real int8_scale(Real largest);
/// x in steps of `scale`, rounded to a whole one that an int8 holds.
inline Real nearest_step(Real x, Real scale) {
  return std::clamp(std::nearbyint(x / scale), Real(-127), Real(127));  // inexact: it may be beyond
}

/// The most columns of a matrix whose products are sure to fit 32 bits.
inline constexpr Index kMostInt8Columns = Index{1} << 17;
/// Of each row of an int8 matrix the sum of its integers.
std::vector<std::int32_t> row_sums(const MatrixView& matrix);

/// C[m, rows] = start + A[m, cols] Wᵀ where A's rows are rounded as those of W, of int8, are, each
/// with its scale: a product of integers, exact, times the two scales (W8A8 of the literature, a
/// scale for each token). `sums` are row_sums(). A row of A with a NaN or infinity gives NaN. Bits
/// depend neither on the number of threads nor on the kernels.
void gemm_nt_w8a8(Index m, const Real* a, Index lda, const MatrixView& w, const std::int32_t* sums,
                  Real* c, Index ldc, Start start = {},
                  const simd::Int8Kernels& kernels = simd::int8_kernels());

}  // namespace focus
