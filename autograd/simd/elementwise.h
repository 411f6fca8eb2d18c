#pragma once

#include "autograd/base/types.h"

// The kernels of element-wise ops and of rows, and of products in double: one pass over memory
// each. They take any n, and an output may be one of the inputs. What they sum is summed in double.
namespace focus::simd {

/// What AdamW::step multiplies with; see optim/adamw.h.
struct AdamWFactors {
  Real gradient_scale;
  Real beta1, one_minus_beta1;
  Real beta2, one_minus_beta2;
  Real keep;             // 1 - lr * weight_decay
  Real step_size;        // lr / (1 - beta1^t)
  Real root_correction;  // sqrt(1 - beta2^t)
  Real eps;
};

struct ElementwiseKernels {
  /// y = f(x), and dx = f'(x) dy.
  struct Function {
    void (*value)(const Real* x, Real* y, Index n);
    void (*gradient)(const Real* x, const Real* dy, Real* dx, Index n);
  };
  Function sigmoid, tanh, log, silu, gelu, gelu_tanh;

  /// y = a + b,  y = a * b,  y = factor x + offset
  void (*add)(const Real* a, const Real* b, Real* y, Index n);
  void (*multiply)(const Real* a, const Real* b, Real* y, Index n);
  void (*affine)(const Real* x, Real factor, Real offset, Real* y, Index n);
  /// y = gate sigmoid(gate) up, and its gradients; one that is null is not computed.
  void (*swiglu)(const Real* gate, const Real* up, Real* y, Index n);
  void (*swiglu_gradient)(const Real* gate, const Real* up, const Real* dy, Real* dgate, Real* dup,
                          Index n);

  /// y = e^(x - max), where y is not null; returns its sum. A row of -inf only gives zeros.
  double (*exp_sum)(const Real* x, Real* y, Index n, Real& max);
  /// y = factor e^(x - shift)
  void (*exp_shifted)(const Real* x, Real shift, Real factor, Real* y, Index n);
  /// dx = p (dy - p·dy)
  void (*softmax_gradient)(const Real* p, const Real* dy, Real* dx, Index n);

  /// y = (x - mean) / sqrt(var + eps) * weight + bias; bias may be null. Not centred: the mean is
  /// taken as 0. Leaves mean and 1 / sqrt(var + eps) behind.
  void (*norm)(const Real* x, const Real* weight, const Real* bias, bool centred, Real eps, Real* y,
               Index n, Real& mean, Real& inverse_std);
  /// dx =, dweight +=, dbias +=; one that is null is not computed.
  void (*norm_gradient)(const Real* x, const Real* weight, const Real* dy, bool centred, Real mean,
                        Real inverse_std, Real* dx, Real* dweight, Real* dbias, Index n);

  /// Rotates the pairs (x_i, x_{i + half}) of each head by the angles whose cosines and sines are
  /// given, times direction (1 or -1). x and y do not overlap.
  void (*rope)(const Real* x, const Real* cos, const Real* sin, Real direction, Index heads,
               Index head_dim, Index half, Real* y);

  /// sum[columns] = the sum of x's rows, x [rows, columns], in Real.
  void (*sum_rows)(const Real* x, Index rows, Index columns, Real* sum);
  double (*sum_of_squares)(const Real* x, Index n);
  /// c[m, n] = a[m, k] b[k, n] in double, for small n or k. a's element (i, p) lies at
  /// a[i * a_row + p * a_column].
  void (*product_in_double)(Index m, Index n, Index k, const double* a, Index a_row, Index a_column,
                            const double* b, double* c);
  void (*adamw)(Real* value, Real* m, Real* v, const Real* gradient, Index n,
                const AdamWFactors& factors);
};

}  // namespace focus::simd
