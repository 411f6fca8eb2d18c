#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/random.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

using Kernels = simd::ElementwiseKernels;

const Kernels& kernels() { return simd::kernels().elementwise; }

/// y = f(x, more...), chunk by chunk.
template <class F, class... More>
Tensor map(F&& f, const Tensor& x, const More&... more) {
  Tensor y(x.shape());
  parallel_chunks(x.size(), kElementChunk, [&, out = y.data()](Index begin, Index end) {
    f(x.data() + begin, (more.data() + begin)..., out + begin, end - begin);
  });
  return y;
}

/// y = factor x + offset
Variable affine(const char* name, const Variable& x, Real factor, Real offset) {
  const auto apply = [](const Tensor& t, Real a, Real b) {
    return map([=](const Real* u, Real* y, Index n) { kernels().affine(u, a, b, y, n); }, t);
  };
  return Variable::from_op(name, apply(x.value(), factor, offset), {x},
                           [=](const Tensor& dy, Grads grads) {
                             grads[0].add(factor == 1 ? dy : apply(dy, factor, 0));
                           });
}

Variable unary(const char* name, const Variable& x, const Kernels::Function& f) {
  return Variable::from_op(
      name, map(f.value, x.value()), {x},
      [kept = x.value(), gradient = f.gradient](const Tensor& dy, Grads grads) {
        grads[0].add(map(gradient, kept, dy));
      });
}

/// The sum over i of f(i), chunk by chunk: the order does not depend on the threads.
template <class F>
double sum_of(Index n, F&& f) {
  std::vector<double> sums((n + kElementChunk - 1) / kElementChunk, 0.0);
  parallel_chunks(n, kElementChunk, [&](Index begin, Index end) {
    double sum = 0;
    for (Index i = begin; i < end; ++i) sum += f(i);
    sums[begin / kElementChunk] = sum;
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

void check_equal(const char* op, const Variable& a, const Variable& b) {
  check(a.shape() == b.shape(), "{}: {} and {} differ", op, a.shape(), b.shape());
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  check_equal("add", a, b);
  return Variable::from_op("add", map(kernels().add, a.value(), b.value()), {a, b},
                           [](const Tensor& dy, Grads grads) {
                             grads[0].add(dy);
                             grads[1].add(dy);
                           });
}

Variable multiply(const Variable& a, const Variable& b) {
  check_equal("multiply", a, b);
  const Tensor kept_a = b.requires_grad() ? a.value() : Tensor();
  const Tensor kept_b = a.requires_grad() ? b.value() : Tensor();
  return Variable::from_op("multiply", map(kernels().multiply, a.value(), b.value()), {a, b},
                           [=](const Tensor& dy, Grads grads) {
                             if (grads[0].wanted())
                               grads[0].add(map(kernels().multiply, dy, kept_b));
                             if (grads[1].wanted())
                               grads[1].add(map(kernels().multiply, dy, kept_a));
                           });
}

Variable scale(const Variable& x, Real factor) { return affine("scale", x, factor, 0); }
Variable shift(const Variable& x, Real offset) { return affine("shift", x, 1, offset); }
Variable log(const Variable& x) { return unary("log", x, kernels().log); }
Variable sigmoid(const Variable& x) { return unary("sigmoid", x, kernels().sigmoid); }
Variable tanh(const Variable& x) { return unary("tanh", x, kernels().tanh); }
Variable gelu(const Variable& x) { return unary("gelu", x, kernels().gelu); }
Variable gelu_tanh(const Variable& x) { return unary("gelu_tanh", x, kernels().gelu_tanh); }
Variable silu(const Variable& x) { return unary("silu", x, kernels().silu); }

Variable dropout(const Variable& x, double probability, std::uint64_t key) {
  check(probability >= 0 && probability < 1, "dropout: a probability of {} is not in [0, 1)",
        probability);
  if (probability == 0) return x;
  // The mask is computed again in backward: cheaper than to keep it.
  const auto apply = [mask = DropoutMask(probability, key)](const Tensor& t) {
    Tensor y(t.shape());
    parallel_chunks(t.size(), kElementChunk, [&, out = y.data()](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) out[i] = t[i] * mask.factor(i);
    });
    return y;
  };
  return Variable::from_op("dropout", apply(x.value()), {x},
                           [=](const Tensor& dy, Grads grads) { grads[0].add(apply(dy)); });
}

Variable swiglu(const Variable& gate, const Variable& up) {
  check_equal("swiglu", gate, up);
  return Variable::from_op(
      "swiglu", map(kernels().swiglu, gate.value(), up.value()), {gate, up},
      [kept_gate = gate.value(), kept_up = up.value()](const Tensor& dy, Grads grads) {
        Tensor dgate = grads[0].wanted() ? Tensor(dy.shape()) : Tensor();
        Tensor dup = grads[1].wanted() ? Tensor(dy.shape()) : Tensor();
        parallel_chunks(dy.size(), kElementChunk, [&](Index begin, Index end) {
          kernels().swiglu_gradient(kept_gate.data() + begin, kept_up.data() + begin,
                                    dy.data() + begin,
                                    dgate.defined() ? dgate.data() + begin : nullptr,
                                    dup.defined() ? dup.data() + begin : nullptr, end - begin);
        });
        grads[0].add(dgate);
        grads[1].add(dup);
      });
}

void soft_cap(Real* row, Index n, Real cap, Real* slope) {
  if (cap == 0) {
    if (slope != nullptr) std::fill_n(slope, n, Real(1));
    return;
  }
  kernels().affine(row, 1 / cap, 0, row, n);
  kernels().tanh.value(row, row, n);
  if (slope != nullptr) {  // 1 - tanh^2
    kernels().multiply(row, row, slope, n);
    kernels().affine(slope, -1, 1, slope, n);
  }
  kernels().affine(row, cap, 0, row, n);
}

Variable soft_cap(const Variable& x, Real cap) {
  return cap > 0 ? scale(tanh(scale(x, 1 / cap)), cap) : x;
}

Variable relative_squared_error(const Variable& x, const Tensor& reference) {
  check(x.shape() == reference.shape(), "relative_squared_error: x {} and reference {} differ",
        x.shape(), reference.shape());
  const Tensor& value = x.value();
  const auto squared = [](double a) { return a * a; };
  const double error = sum_of(value.size(), [&](Index i) {
    return squared(static_cast<double>(value[i]) - static_cast<double>(reference[i]));
  });
  const double size =
      sum_of(value.size(), [&](Index i) { return squared(static_cast<double>(reference[i])); });
  // A reference of zeros has no scale of its own.
  const double share = size > 0 ? 1 / size : 1;
  return Variable::from_op(
      "relative_squared_error", Tensor::full({1}, static_cast<Real>(error * share)), {x},
      [value, reference, share](const Tensor& dy, Grads grads) {
        if (!grads[0].wanted()) return;
        Tensor dx(value.shape());
        const auto factor = static_cast<Real>(2 * share * static_cast<double>(dy[0]));
        parallel_chunks(value.size(), kElementChunk, [&](Index begin, Index end) {
          for (Index i = begin; i < end; ++i) dx.data()[i] = factor * (value[i] - reference[i]);
        });
        grads[0].add(dx);
      });
}

}  // namespace focus
