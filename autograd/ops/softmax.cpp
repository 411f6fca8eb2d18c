#include <cmath>
#include <limits>

#include "autograd/check.h"
#include "autograd/eigen.h"
#include "autograd/ops.h"
#include "autograd/parallel.h"

namespace focus {

Variable softmax(const Variable& x) {
  const Index rows = x.value().rows(), cols = x.value().cols();
  Tensor y(x.shape());
  Real* out = y.data();
  parallel_chunks(rows, rows_per_chunk(cols), [&, out](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const auto row = array(x.value().data() + r * cols, cols);
      auto p = array(out + r * cols, cols);
      const Real max = row.maxCoeff();
      if (std::isinf(max) && max < 0) {
        p.setZero();
        continue;
      }
      p = (row - max).exp();
      p *= 1 / p.sum();
    }
  });
  return Variable::from_op("softmax", y, {x}, [=](const Tensor& dy, Grads grads) {
    Tensor dx(dy.shape());
    parallel_chunks(rows, rows_per_chunk(cols), [&, d = dx.data()](Index begin, Index end) {
      for (Index r = begin; r < end; ++r) {
        const auto p = array(y.data() + r * cols, cols), g = array(dy.data() + r * cols, cols);
        array(d + r * cols, cols) = p * (g - (p * g).sum());  // dx = p (dy - p·dy)
      }
    });
    grads[0].add(dx);
  });
}

Variable log_sum_exp(const Variable& x) {
  check(x.shape().rank() >= 1 && x.dim(-1) > 0, "log_sum_exp: nothing to sum in {}", x.shape());
  const Index rows = x.value().rows(), cols = x.value().cols();
  Tensor y{Shape(x.shape().dims().first(static_cast<std::size_t>(x.shape().rank() - 1)))};
  Real* out = y.data();
  parallel_chunks(rows, rows_per_chunk(cols), [&, out](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const auto row = array(x.value().data() + r * cols, cols);
      const Real max = row.maxCoeff();
      out[r] = std::isinf(max) ? max : max + std::log((row - max).exp().sum());
    }
  });
  return Variable::from_op(
      "log_sum_exp", y, {x}, [=, kept_x = x.value()](const Tensor& dy, Grads grads) {
        Tensor dx(kept_x.shape());
        parallel_chunks(rows, rows_per_chunk(cols), [&, d = dx.data()](Index begin, Index end) {
          for (Index r = begin; r < end; ++r)
            array(d + r * cols, cols) =
                dy[r] * (array(kept_x.data() + r * cols, cols) - y[r]).exp();
        });
        grads[0].add(dx);
      });
}

}  // namespace focus
