#pragma once

#include "autograd/gemm/matrix_view.h"
#include "autograd/simd/q8_kernels.h"

namespace focus {

/// C[m, rows] = start + A[m, cols] Wᵀ for a W in GGML's blocks, as it lies: A's numbers are rounded
/// to int8 in blocks of 32, each with its scale (the largest magnitude over 127, as llama.cpp's
/// Q8_0 but for the scale, which stays float32), the products of four neighbours are summed as
/// integers, and these sums times both scales as float32. A block of A with a NaN or infinity makes
/// its row NaN. Bits depend neither on m nor on the number of threads nor on the kernels. Throws
/// std::invalid_argument for a format that is in no blocks.
void gemm_nt_q8(Index m, const Real* a, Index lda, const MatrixView& w, Real* c, Index ldc,
                Start start = {}, const simd::Q8Kernels& kernels = simd::q8_kernels());

}  // namespace focus
