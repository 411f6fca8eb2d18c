#pragma once

#include <vector>

#include "autograd/simd/kernels.h"

// Products of bf16 matrices that are accumulated in Real, for one thread and plain pointers, as
// kernels.h has them for Real. Kernels with an instruction for it read two numbers at once, which
// are neighbours along the depth: panels of 64 columns (the last of what is left, in whole vectors
// of 16), each of which has its rows of pairs one after the other.
namespace focus::simd {

/// Rows of bf16 numbers have an even pitch, so that pairs of neighbours can be read as one; the
/// number that fills up a row is zero.
/// A matrix that Bf16Kernels packed as the right-hand side of products, or a part of it.
struct Bf16Panels {
  const void* data = nullptr;
  Index rows = 0;          // depth of the whole
  Index columns = 0;       // of the whole, rounded up to whole vectors
  Index first_row = 0;     // where a product starts: even
  Index first_column = 0;  // likewise, a multiple of the vector
};
using Pair = std::uint32_t;  // of bf16 numbers

struct Bf16Kernels {
  const char* name;       // "amx_bf16", "avx512_bf16", "widened"
  Index vector;           // columns of C that are written at once
  bool is_faster;         // whether a product takes less time than one of Real
  bool by_tiles = false;  // AMX: less time, too, than one of integers with scales

  /// to[i] = source[i] in bf16 for n numbers.
  void (*round)(const Real* source, Index n, Bf16* to);
  /// source[depth, columns] as the right-hand side B of a product; `packed` has room for `depth`
  /// times `columns` (rounded up to whole vectors) numbers of type Real.
  void (*pack)(const Bf16* source, Index pitch, Index depth, Index columns, void* packed);
  /// The transpose of source[columns, depth] likewise; `depth` is even or ends where the rows do.
  void (*pack_transposed)(const Bf16* source, Index pitch, Index columns, Index depth,
                          void* packed);
  /// to[cols, rows] = the transpose of source[rows, cols], `to` with rows of `to_pitch` numbers.
  void (*transpose)(const Bf16* source, Index pitch, Index rows, Index cols, Bf16* to,
                    Index to_pitch);
  /// to[cols, rows] = the transpose of source[rows, cols] with rows of `ld` numbers, rounded; an
  /// odd number of rows is filled up with zero.
  void (*round_transposed)(const Real* source, Index ld, Index rows, Index cols, Bf16* to,
                           Index to_pitch);
  /// C[m, columns] = what is kept of it (not by factors) + A[m, depth] B from where B says; columns
  /// a multiple of `vector`, C with rows of `ldc` numbers. Where depth is odd, A's next numbers are
  /// zero or B's next row is.
  void (*product)(Index m, Index columns, Index depth, const Bf16* a, Index a_pitch,
                  const Bf16Panels& b, Real* c, Index ldc, Keep keep);
};

/// What AMX does for them. A table, as all that is compiled for some machines: no function of such
/// a file may run before dispatch.cpp has asked the processor.
struct AmxBf16 {
  decltype(Bf16Kernels::product) product;
  bool (*agrees_with_its_model)();
};

/// The best that this process may use (Instructions); throws as instructions() does.
const Bf16Kernels& bf16_kernels();
/// For whatever is rounded to bf16 only to take less time: bf16_kernels() where their products are
/// faster than those of Real, or where FOCUS_SIMD holds always-bf16; else null.
const Bf16Kernels* fast_bf16_kernels();
/// All that this process may use, best first.
const std::vector<const Bf16Kernels*>& usable_bf16_kernels();

}  // namespace focus::simd
