#include <cmath>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/parallel.h"

namespace focus {
namespace {

void check_norm(const char* op, const Variable& x, const Variable& weight, const Variable& bias) {
  check(x.shape().rank() >= 1 && weight.value().size() == x.dim(-1),
        "{}: weight {} does not fit x {}", op, weight.shape(), x.shape());
  check(!bias.defined() || bias.value().size() == x.dim(-1), "{}: bias {} does not fit x {}", op,
        bias.shape(), x.shape());
}

/// sum over rows of dy * x_hat (x_hat from the rows' own statistics), columns in parallel.
template <class Normalised>
Tensor weight_gradient(const Tensor& dy, const Shape& shape, Normalised&& x_hat) {
  Tensor dw = Tensor::zeros(shape);
  const Index rows = dy.rows(), cols = dy.cols();
  Real* out = dw.data();
  parallel_chunks(cols, 64, [&, out](Index begin, Index end) {
    for (Index r = 0; r < rows; ++r)
      for (Index c = begin; c < end; ++c) out[c] += dy[r * cols + c] * x_hat(r, c);
  });
  return dw;
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, Real eps) {
  check_norm("layer_norm", x, weight, bias);
  const Index rows = x.value().rows(), cols = x.dim(-1);
  const Real* in = x.value().data();
  const Real* w = weight.value().data();
  const Real* b = bias.defined() ? bias.value().data() : nullptr;
  Tensor y(x.shape()), mean({rows}), inverse_std({rows});
  Real* out = y.data();
  parallel_chunks(rows, rows_per_chunk(cols), [&, out](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Real* row = in + r * cols;
      double sum = 0, squares = 0;
      for (Index c = 0; c < cols; ++c) sum += row[c];
      const double mu = sum / static_cast<double>(cols);
      for (Index c = 0; c < cols; ++c) squares += (row[c] - mu) * (row[c] - mu);
      const auto m = static_cast<Real>(mu);
      const auto s = static_cast<Real>(1 / std::sqrt(squares / static_cast<double>(cols) + eps));
      mean.data()[r] = m;
      inverse_std.data()[r] = s;
      for (Index c = 0; c < cols; ++c)
        out[r * cols + c] = (row[c] - m) * s * w[c] + (b ? b[c] : Real(0));
    }
  });
  return Variable::from_op(
      "layer_norm", y, {x, weight, bias},
      [=, kept_x = x.value(), kept_w = weight.value()](const Tensor& dy, Grads grads) {
        const auto x_hat = [&](Index r, Index c) {
          return (kept_x[r * cols + c] - mean[r]) * inverse_std[r];
        };
        if (grads[0].wanted()) {
          // dx = s (dy w - mean(dy w) - x_hat mean(dy w x_hat))
          Tensor dx(dy.shape());
          Real* d = dx.data();
          parallel_chunks(rows, rows_per_chunk(cols), [&, d](Index begin, Index end) {
            for (Index r = begin; r < end; ++r) {
              double sum = 0, along = 0;
              for (Index c = 0; c < cols; ++c) {
                const Real g = dy[r * cols + c] * kept_w[c];
                sum += g;
                along += g * x_hat(r, c);
              }
              const auto a = static_cast<Real>(sum / static_cast<double>(cols));
              const auto h = static_cast<Real>(along / static_cast<double>(cols));
              for (Index c = 0; c < cols; ++c)
                d[r * cols + c] =
                    inverse_std[r] * (dy[r * cols + c] * kept_w[c] - a - x_hat(r, c) * h);
            }
          });
          grads[0].add(dx);
        }
        if (grads[1].wanted()) grads[1].add(weight_gradient(dy, kept_w.shape(), x_hat));
        if (grads[2].wanted())
          grads[2].add(weight_gradient(dy, kept_w.shape(), [](Index, Index) { return Real(1); }));
      });
}

Variable rms_norm(const Variable& x, const Variable& weight, Real eps) {
  check_norm("rms_norm", x, weight, {});
  const Index rows = x.value().rows(), cols = x.dim(-1);
  const Real* in = x.value().data();
  const Real* w = weight.value().data();
  Tensor y(x.shape()), inverse_rms({rows});
  Real* out = y.data();
  parallel_chunks(rows, rows_per_chunk(cols), [&, out](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Real* row = in + r * cols;
      double squares = 0;
      for (Index c = 0; c < cols; ++c) squares += static_cast<double>(row[c]) * row[c];
      const auto s = static_cast<Real>(1 / std::sqrt(squares / static_cast<double>(cols) + eps));
      inverse_rms.data()[r] = s;
      for (Index c = 0; c < cols; ++c) out[r * cols + c] = row[c] * s * w[c];
    }
  });
  return Variable::from_op(
      "rms_norm", y, {x, weight},
      [=, kept_x = x.value(), kept_w = weight.value()](const Tensor& dy, Grads grads) {
        const auto x_hat = [&](Index r, Index c) { return kept_x[r * cols + c] * inverse_rms[r]; };
        if (grads[0].wanted()) {  // dx = s (dy w - x_hat mean(dy w x_hat))
          Tensor dx(dy.shape());
          Real* d = dx.data();
          parallel_chunks(rows, rows_per_chunk(cols), [&, d](Index begin, Index end) {
            for (Index r = begin; r < end; ++r) {
              double along = 0;
              for (Index c = 0; c < cols; ++c)
                along += static_cast<double>(dy[r * cols + c]) * kept_w[c] * x_hat(r, c);
              const auto h = static_cast<Real>(along / static_cast<double>(cols));
              for (Index c = 0; c < cols; ++c)
                d[r * cols + c] = inverse_rms[r] * (dy[r * cols + c] * kept_w[c] - x_hat(r, c) * h);
            }
          });
          grads[0].add(dx);
        }
        if (grads[1].wanted()) grads[1].add(weight_gradient(dy, kept_w.shape(), x_hat));
      });
}

}  // namespace focus
