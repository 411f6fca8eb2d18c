#pragma once

#include "autograd/base/types.h"

// Products of int8 matrices, for one thread and plain pointers. One side is rounded while the
// program runs, the rows of A: their numbers lie as bytes without a sign, 128 above what they are,
// as the instructions want it; who multiplies takes 128 times B's columns' sums off again. Sums are
// modulo 2^32, so exact where the result fits: every machine has the same bits.
namespace focus::simd {

struct Int8Kernels {
  const char* name;  // "amx_int8", "avx512_vnni", "widened"
  Index vector;      // columns of C that are written at once

  /// The largest magnitude of n numbers; NaN where one is.
  Real (*largest)(const Real* source, Index n);
  /// to[i] = the integer nearest to source[i] / scale, ties to even, within ±127, plus 128; scale
  /// is finite and above 0. What fills the row up to a multiple of 4 is 128.
  void (*round)(const Real* source, Index n, Real scale, std::uint8_t* to);
  /// The transpose of source[columns, depth] as the right-hand side of a product: its rows begin
  /// `pitch` apart and fill up to a multiple of 4 with zero, as pitch is. `packed` has room for
  /// `depth` (likewise) times `columns` (rounded up to whole vectors) numbers of type Real.
  void (*pack_transposed)(const std::int8_t* source, Index pitch, Index columns, Index depth,
                          void* packed);
  /// C[m, columns] (+)= A[m, depth] B for a B of so many columns, rounded up to whole vectors, and
  /// of that depth.
  void (*product)(Index m, Index columns, Index depth, const std::uint8_t* a, Index a_pitch,
                  const void* packed, std::int32_t* c, Index ldc, bool add);
  /// c[columns] = a[depth] Bᵀ for B's rows as they lie: for an A of few rows.
  void (*dots)(Index columns, Index depth, const std::uint8_t* a, const std::int8_t* b, Index pitch,
               std::int32_t* c);
};

/// The best for this machine, or those that the environment variable FOCUS_INT8 names. Throws
/// std::runtime_error where this machine has none of that name; not to be called first by a thread
/// of several.
const Int8Kernels& int8_kernels();
/// All that this machine can run, best first: for tests and benchmarks.
struct Int8KernelList {
  const Int8Kernels* items[3];
  int count;
};
Int8KernelList usable_int8_kernels();

}  // namespace focus::simd
