#pragma once

#include <string>

#include "autograd/gemm/matrix_view.h"
#include "autograd/simd/block_kernels.h"

namespace focus {

/// C[m, rows] = start + A[m, cols] Wᵀ for a W in GGML's blocks, as it lies: A's numbers are rounded
/// to int8 in blocks of 32, each with its scale (the largest magnitude over 127, as llama.cpp's
/// Q8_0 but for the scale, which stays float32), products of neighbours are summed as integers, of
/// all 32 or 16 that share a scale of W where A has many rows, of four where it has one or two, and
/// these sums times both scales as float32. A block of A with a NaN or infinity makes its row NaN.
/// Bits depend neither on the number of threads nor on the kernels, and not on m from 3 on. Throws
/// std::invalid_argument for a format that is in no blocks.
void gemm_nt_q8(Index m, const Real* a, Index lda, const MatrixView& w, Real* c, Index ldc,
                Start start = {}, const simd::BlockKernels& kernels = simd::block_kernels());
/// Some such products with the same bits: A is rounded once, and of one or two rows all products
/// are one job for the threads.
void gemm_nt_q8(Index m, const Real* a, Index lda, std::span<const SharedProduct> products,
                const simd::BlockKernels& kernels = simd::block_kernels());

/// A view with what holds its numbers.
struct OwnedView {
  MatrixView view;
  std::shared_ptr<const void> owner;
};
/// A matrix rounded to Q8_0, in memory of its own; its rows are whole blocks. Throws
/// std::invalid_argument, naming the row and the weight (empty: "matrix"), where a block holds NaN,
/// infinity or a number beyond 8.3e6: its scale, in float16, could not represent that.
OwnedView rounded_to_q8_0(const MatrixView& from, const std::string& name = "");

}  // namespace focus
