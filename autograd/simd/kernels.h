#pragma once

#include "autograd/simd/elementwise.h"
#include "autograd/simd/types.h"

// The hot loops, compiled once for each instruction set and chosen when the program starts: the
// best that the machine has. All of them take plain pointers and run on the calling thread.
namespace focus::simd {

/// Rows of C that the micro-kernel holds in registers.
inline constexpr Index kMicroRows = 6;

/// A matrix packed as the right-hand side of a product: panels of `panel` columns, each panel's
/// rows one after the other, so that the micro-kernel reads memory in order. Columns are padded
/// with zeros to a multiple of the vector's width.
struct Panels {
  const Real* data = nullptr;
  Index rows = 0;     // depth of the product
  Index columns = 0;  // padded
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "baseline"
  Index vector;      // numbers in a vector
  Index panel;       // columns of a panel

  /// C[m, columns] (+)= A[m, depth] B, B's first `columns` (a multiple of `vector`) alone.  A's
  /// element (i, p) lies at a[i * a_row + p * a_column], so that A may be a matrix or its
  /// transpose; `first` is the first of B's rows to use, `depth` how many. C has rows of `ldc` >=
  /// columns.
  void (*product)(Index m, Index columns, Index depth, const Real* a, Index a_row, Index a_column,
                  Panels b, Index first, Real* c, Index ldc, bool add);
  /// source[rows, columns] with rows of `ld` numbers, times factor, into panels.
  void (*pack)(const Real* source, Index ld, Index rows, Index columns, Real factor, Real* panels);
  /// The transpose of source[columns, rows] with rows of `ld` numbers, times factor, into panels of
  /// depth `rows`.
  void (*pack_transposed)(const Real* source, Index ld, Index columns, Index rows, Real factor,
                          Real* panels);

  /// One row of an online softmax over n numbers (a multiple of `vector`), in place: the row
  /// becomes e^(s - max); `max` and `sum` are those of the row so far and are brought up to date.
  /// Returns the factor by which what was summed before has to be multiplied.
  Real (*softmax_row)(Real* row, Index n, Real& max, Real& sum);
  /// row = e^(row - lse) over n numbers.
  void (*exp_row)(Real* row, Index n, Real lse);
  /// d = p * (d - delta) over n numbers.
  void (*softmax_backward_row)(const Real* p, Real* d, Index n, Real delta);
  /// s = cap tanh(s / cap) over n numbers.
  void (*softcap_row)(Real* s, Index n, Real cap);
  /// gate = 1 / (1 + e^(-lambda a)) over n numbers.
  void (*sigmoid_row)(const Real* a, Real* gate, Index n, Real lambda);
  /// bias = log(a + floor) over n numbers.
  void (*log_row)(const Real* a, Real* bias, Index n, Real floor);

  ElementwiseKernels elementwise;
};

/// The best for this machine, or those that the environment variable FOCUS_SIMD names. Throws
/// std::runtime_error where this machine has none of that name: programs call it once before they
/// start threads.
const Kernels& kernels();
/// Those of a name that this machine can run; throws as kernels() does.
const Kernels& kernels_named(const char* name);
/// All that this machine can run, best first: for tests and benchmarks.
struct KernelList {
  const Kernels* items[3];
  int count;
};
KernelList usable_kernels();

/// Columns padded to whole vectors; what a packed matrix of that many columns takes per row.
inline Index padded(const Kernels& k, Index columns) {
  return (columns + k.vector - 1) / k.vector * k.vector;
}

}  // namespace focus::simd
