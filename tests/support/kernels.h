#pragma once

#include <gtest/gtest.h>

#include "autograd/simd/bf16_kernels.h"
#include "autograd/simd/kernels.h"
#include "autograd/tensor.h"

namespace focus {

/// Calls f(kernels) for all that this machine can run.
template <class F>
void for_kernels(F&& f) {
  for (const simd::Kernels* kernels : simd::usable_kernels()) {
    SCOPED_TRACE(kernels->name);
    f(*kernels);
  }
}

/// Sums in double: A Wᵀ where `transposed`, or A W.
inline Tensor product_in_double(const Tensor& a, const Tensor& w, bool transposed) {
  const Index m = a.dim(0), k = a.dim(1), n = transposed ? w.dim(0) : w.dim(1);
  Tensor c({m, n});
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      double sum = 0;
      for (Index p = 0; p < k; ++p)
        sum += static_cast<double>(a[i * k + p]) *
               static_cast<double>(transposed ? w[j * k + p] : w[p * n + j]);
      c.data()[i * n + j] = static_cast<Real>(sum);
    }
  return c;
}

}  // namespace focus
