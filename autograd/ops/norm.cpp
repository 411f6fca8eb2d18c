#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/ops.h"
#include "autograd/ops/sum_rows.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Both norms: rms_norm is the one that is not centred.
Variable norm(const char* op, const Variable& x, const Variable& weight, const Variable& bias,
              bool centred, Real eps) {
  check(x.shape().rank() >= 1 && weight.value().size() == x.dim(-1),
        "{}: weight {} does not fit x {}", op, weight.shape(), x.shape());
  check(!bias.defined() || bias.value().size() == x.dim(-1), "{}: bias {} does not fit x {}", op,
        bias.shape(), x.shape());
  const Index rows = x.value().rows(), cols = x.dim(-1), chunk = rows_per_chunk(cols);
  Tensor y(x.shape()), mean({rows}), inverse_std({rows});
  parallel_chunks(
      rows, chunk,
      [&, out = y.data(), m = mean.data(), s = inverse_std.data()](Index begin, Index end) {
        const Real* b = bias.defined() ? bias.value().data() : nullptr;
        for (Index r = begin; r < end; ++r)
          simd::kernels().elementwise.norm(x.value().data() + r * cols, weight.value().data(), b,
                                           centred, eps, out + r * cols, cols, m[r], s[r]);
      });
  return Variable::from_op(
      op, y, {x, weight, bias},
      [=, kept_x = x.value(), kept_w = weight.value()](const Tensor& dy, Grads grads) {
        // Each chunk of rows has sums of its own for the weight and the bias.
        const Shape sums{(rows + chunk - 1) / chunk, cols};
        Tensor dx = grads[0].wanted() ? Tensor(dy.shape()) : Tensor();
        Tensor dw = grads[1].wanted() ? Tensor::zeros(sums) : Tensor();
        Tensor db = grads[2].wanted() ? Tensor::zeros(sums) : Tensor();
        parallel_chunks(rows, chunk, [&](Index begin, Index end) {
          const auto row_of = [cols](Tensor& t, Index r) {
            return t.defined() ? t.data() + r * cols : nullptr;
          };
          for (Index r = begin; r < end; ++r)
            simd::kernels().elementwise.norm_gradient(
                kept_x.data() + r * cols, kept_w.data(), dy.data() + r * cols, centred, mean[r],
                inverse_std[r], row_of(dx, r), row_of(dw, begin / chunk), row_of(db, begin / chunk),
                cols);
        });
        if (dx.defined()) grads[0].add(dx);
        if (dw.defined()) grads[1].add(sum_rows(dw, kept_w.shape()));
        if (db.defined()) grads[2].add(sum_rows(db, kept_w.shape()));
      });
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, Real eps) {
  return norm("layer_norm", x, weight, bias, true, eps);
}

Variable rms_norm(const Variable& x, const Variable& weight, Real eps) {
  return norm("rms_norm", x, weight, {}, false, eps);
}

}  // namespace focus
