#include <cmath>
#include <numbers>

#include "autograd/check.h"
#include "autograd/eigen.h"
#include "autograd/ops.h"
#include "autograd/parallel.h"

namespace focus {
namespace {

using Segment = ConstArrayMap;

/// y = f(x) on arrays, chunk by chunk.
template <class F>
Tensor map(const Tensor& x, F&& f) {
  Tensor y(x.shape());
  parallel_chunks(x.size(), kElementChunk, [&, out = y.data()](Index begin, Index end) {
    f(array(x.data() + begin, end - begin), array(out + begin, end - begin));
  });
  return y;
}

/// y = f(a, b) on arrays, chunk by chunk.
template <class F>
Tensor map(const Tensor& a, const Tensor& b, F&& f) {
  Tensor y(a.shape());
  parallel_chunks(a.size(), kElementChunk, [&, out = y.data()](Index begin, Index end) {
    f(array(a.data() + begin, end - begin), array(b.data() + begin, end - begin),
      array(out + begin, end - begin));
  });
  return y;
}

/// An op of one input whose backward is dx = derivative(x) * dy.
template <class Forward, class Derivative>
Variable unary(const char* name, const Variable& x, Forward forward, Derivative derivative) {
  return Variable::from_op(name, map(x.value(), forward), {x},
                           [kept = x.value(), derivative](const Tensor& dy, Grads grads) {
                             grads[0].add(map(kept, dy, derivative));
                           });
}

void check_equal(const char* op, const Variable& a, const Variable& b) {
  check(a.shape() == b.shape(), "{}: {} and {} differ", op, a.shape(), b.shape());
}

auto logistic(const auto& x) { return (1 + (-x).exp()).inverse(); }

const Real kSqrt2OverPi = static_cast<Real>(std::sqrt(2 / std::numbers::pi));
constexpr Real kGeluCubic = static_cast<Real>(0.044715);

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  check_equal("add", a, b);
  Tensor y = map(a.value(), b.value(), [](Segment u, Segment v, ArrayMap out) { out = u + v; });
  return Variable::from_op("add", y, {a, b}, [](const Tensor& dy, Grads grads) {
    grads[0].add(dy);
    grads[1].add(dy);
  });
}

Variable multiply(const Variable& a, const Variable& b) {
  check_equal("multiply", a, b);
  const auto product = [](Segment u, Segment v, ArrayMap out) { out = u * v; };
  const Tensor kept_a = b.requires_grad() ? a.value() : Tensor();
  const Tensor kept_b = a.requires_grad() ? b.value() : Tensor();
  return Variable::from_op("multiply", map(a.value(), b.value(), product), {a, b},
                           [=](const Tensor& dy, Grads grads) {
                             if (grads[0].wanted()) grads[0].add(map(dy, kept_b, product));
                             if (grads[1].wanted()) grads[1].add(map(dy, kept_a, product));
                           });
}

Variable scale(const Variable& x, Real factor) {
  const auto scaled = [factor](Segment u, ArrayMap out) { out = u * factor; };
  return Variable::from_op(
      "scale", map(x.value(), scaled), {x},
      [scaled](const Tensor& dy, Grads grads) { grads[0].add(map(dy, scaled)); });
}

Variable shift(const Variable& x, Real offset) {
  return Variable::from_op("shift",
                           map(x.value(), [offset](Segment u, ArrayMap out) { out = u + offset; }),
                           {x}, [](const Tensor& dy, Grads grads) { grads[0].add(dy); });
}

Variable log(const Variable& x) {
  return unary(
      "log", x, [](Segment u, ArrayMap y) { y = u.log(); },
      [](Segment u, Segment dy, ArrayMap dx) { dx = dy / u; });
}

Variable sigmoid(const Variable& x) {
  return unary(
      "sigmoid", x, [](Segment u, ArrayMap y) { y = logistic(u); },
      [](Segment u, Segment dy, ArrayMap dx) { dx = dy * logistic(u) * (1 - logistic(u)); });
}

Variable tanh(const Variable& x) {
  return unary(
      "tanh", x, [](Segment u, ArrayMap y) { y = u.tanh(); },
      [](Segment u, Segment dy, ArrayMap dx) { dx = dy * (1 - u.tanh().square()); });
}

Variable gelu(const Variable& x) {
  return unary(
      "gelu", x,
      [](Segment u, ArrayMap y) {
        for (Index i = 0; i < u.size(); ++i)
          y[i] = u[i] * std::erfc(-u[i] / std::numbers::sqrt2_v<Real>) / 2;
      },
      [](Segment u, Segment dy, ArrayMap dx) {
        // d/dx x Phi(x) = Phi(x) + x phi(x)
        constexpr Real kDensity = std::numbers::inv_sqrtpi_v<Real> / std::numbers::sqrt2_v<Real>;
        for (Index i = 0; i < u.size(); ++i)
          dx[i] = dy[i] * (std::erfc(-u[i] / std::numbers::sqrt2_v<Real>) / 2 +
                           u[i] * kDensity * std::exp(-u[i] * u[i] / 2));
      });
}

Variable gelu_tanh(const Variable& x) {
  return unary(
      "gelu_tanh", x,
      [](Segment u, ArrayMap y) {
        y = (kSqrt2OverPi * (u + kGeluCubic * u.cube())).tanh();
        y = u * (1 + y) / 2;
      },
      [](Segment u, Segment dy, ArrayMap dx) {
        // t = tanh(z): (1 + t)/2 + x/2 (1 - t^2) dz/dx
        dx = (kSqrt2OverPi * (u + kGeluCubic * u.cube())).tanh();
        dx = dy *
             ((1 + dx) +
              u * (1 - dx.square()) * (kSqrt2OverPi * (1 + 3 * kGeluCubic * u.square()))) /
             2;
      });
}

Variable silu(const Variable& x) {
  return unary(
      "silu", x, [](Segment u, ArrayMap y) { y = u * logistic(u); },
      [](Segment u, Segment dy, ArrayMap dx) {
        dx = logistic(u);
        dx = dy * dx * (1 + u * (1 - dx));
      });
}

Variable swiglu(const Variable& gate, const Variable& up) {
  check_equal("swiglu", gate, up);
  Tensor y = map(gate.value(), up.value(),
                 [](Segment g, Segment u, ArrayMap out) { out = g * logistic(g) * u; });
  return Variable::from_op(
      "swiglu", y, {gate, up},
      [kept_gate = gate.value(), kept_up = up.value()](const Tensor& dy, Grads grads) {
        Tensor dgate(dy.shape()), dup(dy.shape());
        const bool want_gate = grads[0].wanted(), want_up = grads[1].wanted();
        parallel_chunks(dy.size(), kElementChunk, [&](Index begin, Index end) {
          const Index n = end - begin;
          const auto d = array(dy.data() + begin, n),
                     g = array(std::as_const(kept_gate).data() + begin, n);
          const auto u = array(std::as_const(kept_up).data() + begin, n);
          const Eigen::Array<Real, Eigen::Dynamic, 1> s = logistic(g);
          if (want_gate) array(dgate.data() + begin, n) = d * u * s * (1 + g * (1 - s));
          if (want_up) array(dup.data() + begin, n) = d * g * s;
        });
        if (want_gate) grads[0].add(dgate);
        if (want_up) grads[1].add(dup);
      });
}

}  // namespace focus
