#include <cmath>
#include <limits>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Calls f(r) for each row, in chunks.
template <class F>
void for_rows(Index rows, Index cols, F&& f) {
  parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) f(r);
  });
}

}  // namespace

Variable softmax(const Variable& x) {
  const Index rows = x.value().rows(), cols = x.value().cols();
  Tensor y(x.shape());
  for_rows(rows, cols, [&, out = y.data()](Index r) {
    const auto& kernels = simd::kernels().elementwise;
    Real max = 0;
    Real* p = out + r * cols;
    const double sum = kernels.exp_sum(x.value().data() + r * cols, p, cols, max);
    if (sum != 0) kernels.affine(p, static_cast<Real>(1 / sum), 0, p, cols);
  });
  return Variable::from_op("softmax", y, {x}, [=](const Tensor& dy, Grads grads) {
    Tensor dx(dy.shape());
    for_rows(rows, cols, [&, d = dx.data()](Index r) {
      simd::kernels().elementwise.softmax_gradient(y.data() + r * cols, dy.data() + r * cols,
                                                   d + r * cols, cols);
    });
    grads[0].add(dx);
  });
}

Variable log_sum_exp(const Variable& x) {
  check(x.shape().rank() >= 1 && x.dim(-1) > 0, "log_sum_exp: {} has no elements to sum",
        x.shape());
  const Index rows = x.value().rows(), cols = x.value().cols();
  Tensor y{Shape(x.shape().dims().first(static_cast<std::size_t>(x.shape().rank() - 1)))};
  for_rows(rows, cols, [&, out = y.data()](Index r) {
    Real max = 0;
    const double sum =
        simd::kernels().elementwise.exp_sum(x.value().data() + r * cols, nullptr, cols, max);
    out[r] = std::isinf(max) ? max : max + static_cast<Real>(std::log(sum));
  });
  return Variable::from_op("log_sum_exp", y, {x},
                           [=, kept_x = x.value()](const Tensor& dy, Grads grads) {
                             Tensor dx(kept_x.shape());
                             for_rows(rows, cols, [&, d = dx.data()](Index r) {
                               simd::kernels().elementwise.exp_shifted(
                                   kept_x.data() + r * cols, y[r], dy[r], d + r * cols, cols);
                             });
                             grads[0].add(dx);
                           });
}

}  // namespace focus
