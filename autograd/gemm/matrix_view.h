#pragma once

#include <span>

#include "autograd/gemm/gemm.h"
#include "autograd/gemm/number_format.h"

namespace focus {

/// A matrix [rows, cols] of numbers as somebody else laid them into memory: a file that is mapped,
/// one part of a fused matrix, the transpose of what is stored. What is stored are lines, each of
/// which lies together: the rows, or where it is transposed the columns. Element (i, j) is number
///   i pitch + j        of rows that lie as they are,
///   j pitch + i        transposed,
/// with stored_row(i) for i where the rows come in runs (q, k and v fused head by head) or in
/// pairs. A line of a format in blocks is a whole number of them; pitch counts numbers all the
/// same.
struct MatrixView {
  const void* data = nullptr;  // of element (0, 0), at an address that its format divides
  NumberFormat format = kRealFormat;
  Index rows = 0, cols = 0;
  Index pitch = 0;  // numbers from one line to the next
  bool transposed = false;
  Index run = 0, run_pitch = 0;  // rows; 0: all of them are one run
  /// > 0: the rows of each head of so many lie as GGUF's llama has them, 2i and 2i + 1 of what is
  /// stored being i and i + half a head. Within a run, where there are runs.
  Index rotary_pairs = 0;

  bool runs() const { return run > 0 && run < rows; }
  /// Whether the rows are stored in their order, with nothing between them.
  bool in_order() const { return !runs() && rotary_pairs == 0; }
  /// The place of row i among the rows that are stored.
  Index stored_row(Index i) const {
    if (rotary_pairs > 0) {
      const Index in_head = i % rotary_pairs, half = rotary_pairs / 2;
      i += (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1) - in_head;
    }
    return runs() ? i / run * run_pitch + i % run : i;
  }
};

/// The part of a view that begins with the number at that place. Throws
/// std::invalid_argument where that is within a block.
MatrixView from_number(MatrixView view, Index place);

/// to[count, cols] = rows [first, first + count).
void read_rows(const MatrixView& view, Index first, Index count, Real* to);
/// How many rows are worth reading at a time.
Index rows_at_a_time(const MatrixView& view);

/// C[m, rows] = A[m, cols] Bᵀ. Numbers are widened a block at a time, on the way into the kernels:
/// the bits are those of gemm_nt() with the widened matrix, and do not depend on how B is laid.
void gemm_nt(Index m, const Real* a, Index lda, const MatrixView& b, Real* c, Index ldc,
             Start start = {});

/// A product C[m, rows] = start + A Wᵀ of some that have the same A.
struct SharedProduct {
  MatrixView w;
  Real* c;
  Index ldc;
  Start start = {};
};
/// Some products with the bits of gemm_nt(); for few rows of A and matrices in blocks they are one
/// job for the threads.
void gemm_nt(Index m, const Real* a, Index lda, std::span<const SharedProduct> products);
/// C[m, cols] = A[m, rows] B, with the bits of gemm() likewise.
void gemm(Index m, const Real* a, Index lda, const MatrixView& b, Real* c, Index ldc,
          Start start = {});

}  // namespace focus
