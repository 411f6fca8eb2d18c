#pragma once

#include <cstdint>

#include "autograd/simd/kernels.h"
#include "autograd/tensor.h"

// Matrix products behind one facade. All matrices are row-major; ld* is the distance between rows.
// The bits of a result do not depend on the number of threads: how C is dealt out depends on the
// shape alone.
namespace focus {

/// Whether a product overwrites C or adds to it.
enum class Into { assign, add };

/// What a product is added to: nothing, C, or one row of n numbers for each of C's (a bias).
struct Start {
  Start(Into into = Into::assign) : add(into == Into::add) {}  // NOLINT: an Into is one
  explicit Start(const Real* bias) : row(bias) {}              // null: nothing
  simd::Keep keep() const { return {.any = add, .row = row}; }
  Real in_column(Index j) const { return row == nullptr ? Real(0) : row[j]; }
  /// C's columns from j to the end.
  Start from_column(Index j) const { return row == nullptr ? *this : Start(row + j); }

  bool add = false;
  const Real* row = nullptr;
};

/// C[m,n] = A[m,k] B[k,n]
void gemm(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
          Index ldc, Start start = {});
/// C[m,n] = A[m,k] B[n,k]ᵀ
void gemm_nt(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Start start = {});
/// C[m,n] = A[k,m]ᵀ B[k,n]
void gemm_tn(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Start start = {});

/// The same products on the calling thread alone, for the tiles of a kernel that is already
/// parallel over them.
namespace serial {
void gemm(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
          Index ldc, Start start = {});
void gemm_nt(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Start start = {});
void gemm_tn(Index m, Index n, Index k, const Real* a, Index lda, const Real* b, Index ldb, Real* c,
             Index ldc, Start start = {});
}  // namespace serial

/// Multiply-adds of all products since the start of the program, those of attention tiles included:
/// the difference of two readings says what a pass computed.
std::uint64_t multiply_adds();
/// Adds to them: for kernels that multiply by other means.
void count_multiply_adds(std::uint64_t count);

}  // namespace focus
