#include <cmath>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/ops.h"
#include "autograd/ops/weight_products.h"
#include "autograd/simd/kernels.h"

// Ops that go through their input row by row: softmax, norms, rotary embeddings.
namespace focus {
namespace {

/// Calls f(r) for each row, in chunks.
template <class F>
void for_rows(Index rows, Index cols, F&& f) {
  parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) f(r);
  });
}

/// Both norms: rms_norm is the one that is not centred.
Variable norm(const char* op, const Variable& x, const Variable& weight, const Variable& bias,
              bool centred, Real eps) {
  check(x.shape().rank() >= 1 && weight.value().size() == x.dim(-1),
        "{}: weight {} does not fit x {}", op, weight.shape(), x.shape());
  check(!bias.defined() || bias.value().size() == x.dim(-1), "{}: bias {} does not fit x {}", op,
        bias.shape(), x.shape());
  const Index rows = x.value().rows(), cols = x.dim(-1), chunk = rows_per_chunk(cols);
  Tensor y(x.shape()), mean({rows}), inverse_std({rows});
  const Real* b = bias.defined() ? bias.value().data() : nullptr;
  for_rows(rows, cols, [&, out = y.data(), m = mean.data(), s = inverse_std.data()](Index r) {
    simd::kernels().elementwise.norm(x.value().data() + r * cols, weight.value().data(), b, centred,
                                     eps, out + r * cols, cols, m[r], s[r]);
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

/// Rotates by the table's angles times `direction` (+1 or -1).
Tensor rotated(const Tensor& x, const RotaryTable& table, Index first_position, Real direction) {
  const Index seq_len = x.dim(1), heads = x.dim(2), head_dim = x.dim(3), half = table.cos.dim(1);
  const Index width = heads * head_dim;
  Tensor y(x.shape());
  for_rows(x.dim(0) * seq_len, width, [&, out = y.data()](Index t) {
    const Index angles = (first_position + t % seq_len) * half;
    simd::kernels().elementwise.rope(x.data() + t * width, table.cos.data() + angles,
                                     table.sin.data() + angles, direction, heads, head_dim, half,
                                     out + t * width);
  });
  return y;
}

}  // namespace

Tensor sum_rows(const Tensor& x, const Shape& shape) {
  constexpr Index kRows = 32;  // of a chunk
  const Index rows = x.rows(), cols = x.cols();
  if (rows == 0) return Tensor::zeros(shape);
  Tensor sums({(rows + kRows - 1) / kRows, cols});
  parallel_chunks(rows, kRows, [&, out = sums.data()](Index begin, Index end) {
    simd::kernels().elementwise.sum_rows(x.data() + begin * cols, end - begin, cols,
                                         out + begin / kRows * cols);
  });
  return sums.rows() == 1 ? sums.reshape(shape) : sum_rows(sums, shape);
}

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
  Tensor y{Shape(x.shape().dims().first(x.shape().rank() - 1))};
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

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, Real eps) {
  return norm("layer_norm", x, weight, bias, true, eps);
}

Variable rms_norm(const Variable& x, const Variable& weight, Real eps) {
  return norm("rms_norm", x, weight, {}, false, eps);
}

Variable rope(const Variable& x, const RotaryTable& table, Index first_position) {
  check(
      x.shape().rank() == 4 && table.cos.rank() == 2 && first_position >= 0 &&
          first_position + x.dim(1) <= table.cos.dim(0) && 2 * table.cos.dim(1) <= x.dim(3),
      "rope: x {} ([batch, seq_len, heads, head_dim]) from position {} does not fit a table of {}",
      x.shape(), first_position, table.cos.shape());
  // A rotation's transpose is the rotation back.
  return Variable::from_op("rope", rotated(x.value(), table, first_position, 1), {x},
                           [table, first_position](const Tensor& dy, Grads grads) {
                             grads[0].add(rotated(dy, table, first_position, -1));
                           });
}

}  // namespace focus
