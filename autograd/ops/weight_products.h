#pragma once

#include <algorithm>
#include <optional>

#include "autograd/gemm/bf16.h"
#include "autograd/gemm/gemm.h"
#include "autograd/weight.h"

// The products of a layer with its weight [out, in], whichever way that is stored.
namespace focus {

/// A weight as products read it: as it is, or where it multiplies_in_bf16() its numbers rounded,
/// once for all that is multiplied with them.
struct ProductWeight {
  explicit ProductWeight(const Weight& w) : weight(w) {
    if (w.multiplies_in_bf16()) rounded.emplace(w.dim(0), w.dim(1), w.value().data(), w.dim(1));
  }

  Weight weight;
  std::optional<Bf16Matrix> rounded = {};
};

/// Rows that are multiplied with a weight, or with one another for its gradient, likewise.
struct ProductRows {
  ProductRows() = default;  // none
  /// The tensor, or its numbers rounded, is kept.
  ProductRows(const Tensor& x, const Weight& by)
      : ProductRows(x.rows(), x.cols(), x.data(), by.multiplies_in_bf16()) {
    if (!rounded) owner = x;
  }
  /// Numbers [count, width] that outlive these rows.
  ProductRows(Index count, Index width, const Real* numbers, bool in_bf16) : rows(count) {
    if (in_bf16)
      rounded.emplace(count, width, numbers, width);
    else
      values = numbers;
  }

  Index rows = 0;
  const Real* values = nullptr;
  std::optional<Bf16Matrix> rounded = {};
  Tensor owner = {};
};

/// y[rows, out] = start + x[rows, in] Wᵀ
inline void weight_product(const ProductRows& x, const ProductWeight& w, Real* y,
                           Start start = {}) {
  const Weight& weight = w.weight;
  const Index out = weight.dim(0), in = weight.dim(1);
  if (w.rounded)
    gemm_nt(*x.rounded, *w.rounded, y, out, start);
  else if (weight.is_frozen_matrix())
    weight.frozen_matrix()->gemm_nt(x.rows, x.values, y, start);
  else
    gemm_nt(x.rows, out, in, x.values, in, weight.value().data(), in, y, out, start);
}

/// dx[rows, in] = start + dy[rows, out] W
inline void weight_product_backward(const ProductRows& dy, const ProductWeight& w, Real* dx,
                                    Start start = {}) {
  const Weight& weight = w.weight;
  const Index out = weight.dim(0), in = weight.dim(1);
  if (w.rounded)
    gemm(*dy.rounded, *w.rounded, dx, in, start);
  else if (weight.is_frozen_matrix())
    weight.frozen_matrix()->gemm(dy.rows, dy.values, dx, start);
  else
    gemm(dy.rows, in, out, dy.values, out, weight.value().data(), in, dx, in, start);
}

/// dW[out, in] = dyᵀ x, or onto dW, for dy[rows, out] and x[rows, in]
inline void weight_gradient(const ProductRows& dy, const ProductRows& x, Tensor& dw,
                            Into into = Into::assign) {
  const Index out = dw.dim(0), in = dw.dim(1);
  if (dy.rounded)
    gemm_tn(*dy.rounded, *x.rounded, dw.data(), in, into);
  else
    gemm_tn(out, in, dy.rows, dy.values, out, x.values, in, dw.data(), in, into);
}

/// row[in] = the weight's row i
inline void weight_row(const Weight& weight, Index i, Real* row) {
  if (weight.is_frozen_matrix())
    weight.frozen_matrix()->row(i, row);
  else
    std::copy_n(weight.value().data() + i * weight.dim(1), weight.dim(1), row);
}

/// The sum of the rows of x [..., n], under `shape` (of n numbers). In parallel over chunks of rows
/// whose sums are then summed in the same way: the order does not depend on the threads.
Tensor sum_rows(const Tensor& x, const Shape& shape);

}  // namespace focus
