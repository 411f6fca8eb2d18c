#include <cmath>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/ops.h"

namespace focus {
namespace {

/// The sum over i of f(i), chunk by chunk: the order does not depend on the threads.
template <class F>
double sum_of(Index n, F&& f) {
  std::vector<double> sums(static_cast<std::size_t>((n + kElementChunk - 1) / kElementChunk), 0.0);
  parallel_chunks(n, kElementChunk, [&](Index begin, Index end) {
    double sum = 0;
    for (Index i = begin; i < end; ++i) sum += f(i);
    sums[static_cast<std::size_t>(begin / kElementChunk)] = sum;
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

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
