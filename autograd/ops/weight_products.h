#pragma once

#include "autograd/gemm/bf16.h"
#include "autograd/gemm/gemm.h"
#include "autograd/variable.h"

// The products of a layer with its weight [out, in], whichever way that is stored.
namespace focus {

/// y[rows, out] = x[rows, in] Wᵀ
inline void weight_product(Index rows, const Real* x, const Variable& weight, Real* y) {
  const Index out = weight.dim(0), in = weight.dim(1);
  if (weight.in_bf16())
    gemm_nt(rows, x, in, weight.bf16(), y, out);
  else
    gemm_nt(rows, out, in, x, in, weight.value().data(), in, y, out);
}

/// dx[rows, in] = dy[rows, out] W
inline void weight_product_backward(Index rows, const Real* dy, const Variable& weight, Real* dx) {
  const Index out = weight.dim(0), in = weight.dim(1);
  if (weight.in_bf16())
    gemm(rows, dy, out, weight.bf16(), dx, in);
  else
    gemm(rows, in, out, dy, out, weight.value().data(), in, dx, in);
}

}  // namespace focus
