#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/gemm_shapes.h"

// Other libraries' products of the same matrices, for comparison with autograd/gemm.h.
namespace focus::bench {

/// C[m, n] = A[m, k] B, all row-major and contiguous. B is stored as [k, n], or as [n, k] where it
/// is transposed (a linear layer's weight).
struct GemmProblem {
  GemmShape shape;
  bool transposed;
  const float* a;
  const float* b;
  float* c;
};

/// A way to compute a product: `prepare` does what need not be done each time.
struct GemmPeer {
  std::string name;
  std::function<std::function<void()>(const GemmProblem&)> prepare;
};

/// With `threads` threads; defined where the library was found (FOCUS_HAS_OPENBLAS, _ONEDNN).
std::vector<GemmPeer> openblas_peers(int threads);
std::vector<GemmPeer> onednn_peers(int threads);

}  // namespace focus::bench

// gemm_eigen.cpp, which is built twice, each time as a shared library of its own: templates
// compiled for two instruction sets must not meet in one program.
#define FOCUS_EIGEN_PEER(name)                                                           \
  extern "C" __attribute__((visibility("default"))) void name(                           \
      long m, long k, long n, bool transposed, const float* a, const float* b, float* c, \
      int threads, bool row_chunks)
FOCUS_EIGEN_PEER(focus_eigen_plain);
FOCUS_EIGEN_PEER(focus_eigen_tuned);
