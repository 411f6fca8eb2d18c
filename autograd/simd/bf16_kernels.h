#pragma once

#include "autograd/simd/types.h"

// Products of bf16 matrices that are accumulated in Real, for one thread and plain pointers, as
// kernels.h has them for Real.
namespace focus::simd {

/// Rows of bf16 numbers have an even pitch, so that pairs of neighbours can be read as one; the
/// number that fills up a row is zero.
struct Bf16Kernels {
  const char* name;  // "amx_bf16", "avx512_bf16", "widened"
  Index vector;      // columns of C that are written at once
  /// Whether three products take less time than one of Real.
  bool three_pay;

  /// to[i] = source[i] in bf16 for n numbers.
  void (*round)(const Real* source, Index n, Bf16* to);
  /// source[depth, columns] as the right-hand side B of a product; `packed` has room for `depth`
  /// (rounded up to even) times `columns` (rounded up to whole vectors) numbers of type Real.
  void (*pack)(const Bf16* source, Index pitch, Index depth, Index columns, void* packed);
  /// The transpose of source[columns, depth] likewise; `depth` is even or ends where the rows do.
  void (*pack_transposed)(const Bf16* source, Index pitch, Index columns, Index depth,
                          void* packed);
  /// to[cols, rows] = the transpose of source[rows, cols], `to` with rows of `to_pitch` numbers.
  void (*transpose)(const Bf16* source, Index pitch, Index rows, Index cols, Bf16* to,
                    Index to_pitch);
  /// C[m, columns] (+)= A[m, depth] B with the whole packed B; columns a multiple of `vector`, C
  /// with rows of `ldc` numbers.
  void (*product)(Index m, Index columns, Index depth, const Bf16* a, Index a_pitch,
                  const void* packed, Real* c, Index ldc, bool add);
};

/// The best for this machine, or those that the environment variable FOCUS_BF16 names. Throws
/// std::runtime_error where this machine has none of that name; not to be called first by a thread
/// of several.
const Bf16Kernels& bf16_kernels();
/// For products of numbers that are split into two: those of bf16_kernels() where three products
/// take less time than one of Real, or where FOCUS_BF16 names them; else null.
const Bf16Kernels* bf16x3_kernels();
/// All that this machine can run, best first: for tests and benchmarks.
struct Bf16KernelList {
  const Bf16Kernels* items[3];
  int count;
};
Bf16KernelList usable_bf16_kernels();

}  // namespace focus::simd
