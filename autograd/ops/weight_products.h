#pragma once

#include <algorithm>

#include "autograd/gemm/bf16.h"
#include "autograd/gemm/gemm.h"
#include "autograd/weight.h"

// The products of a layer with its weight [out, in], whichever way that is stored.
namespace focus {

/// What products read: the weight, or where it multiplies_in_bf16() its numbers rounded, once for
/// all that is multiplied with them.
inline Weight for_products(const Weight& weight) {
  return weight.multiplies_in_bf16() ? Weight(FrozenMatrix(weight.value(), MatrixForm::bf16))
                                     : weight;
}

/// y[rows, out] = x[rows, in] Wᵀ of for_products()
inline void weight_product(Index rows, const Real* x, const Weight& weight, Real* y) {
  const Index out = weight.dim(0), in = weight.dim(1);
  if (weight.is_frozen_matrix())
    weight.frozen_matrix()->gemm_nt(rows, x, y);
  else
    gemm_nt(rows, out, in, x, in, weight.value().data(), in, y, out);
}

/// dx[rows, in] = dy[rows, out] W likewise
inline void weight_product_backward(Index rows, const Real* dy, const Weight& weight, Real* dx) {
  const Index out = weight.dim(0), in = weight.dim(1);
  if (weight.is_frozen_matrix())
    weight.frozen_matrix()->gemm(rows, dy, dx);
  else
    gemm(rows, in, out, dy, out, weight.value().data(), in, dx, in);
}

/// dW[out, in] = dyᵀ x, or onto dW, for dy[rows, out] and x[rows, in]; `bf16`: as
/// Weight::multiply_in_bf16() has it.
inline void weight_gradient(Index rows, const Real* dy, const Real* x, bool bf16, Tensor& dw,
                            Into into = Into::assign) {
  const Index out = dw.dim(0), in = dw.dim(1);
  if (bf16)
    gemm_tn_bf16(out, in, rows, dy, out, x, in, dw.data(), in, into);
  else
    gemm_tn(out, in, rows, dy, out, x, in, dw.data(), in, into);
}

/// row[in] = the weight's row i
inline void weight_row(const Weight& weight, Index i, Real* row) {
  if (weight.is_frozen_matrix())
    weight.frozen_matrix()->row(i, row);
  else
    std::copy_n(weight.value().data() + i * weight.dim(1), weight.dim(1), row);
}

}  // namespace focus
