#include "focus/method/grouping/balance_losses.h"

#include <array>
#include <bit>
#include <cmath>

#include "autograd/ops.h"

namespace focus {
namespace {

Tensor one_number(double x) { return Tensor::from({1}, std::array{static_cast<Real>(x)}); }

std::vector<double> mean_assignment(const Tensor& g) {
  std::vector<double> mean(static_cast<std::size_t>(g.cols()), 0.0);
  for (Index i = 0; i < g.rows(); ++i)
    for (std::size_t k = 0; k < mean.size(); ++k)
      mean[k] += static_cast<double>(g[i * g.cols() + static_cast<Index>(k)]);
  for (double& p : mean) p /= static_cast<double>(g.rows());
  return mean;
}

/// x log x, and its derivative where x is not 0: a group that no token has any part in is left
/// there, where the derivative would be -inf.
double x_log_x(double x) { return x > 0 ? x * std::log(x) : 0; }
double x_log_x_slope(double x) { return x > 0 ? std::log(x) + 1 : 0; }

}  // namespace

Variable balance_loss(const Routing& routing) {
  const Variable& g = routing.assignments;
  const Tensor& values = g.value();
  const Index groups = values.cols(), tokens = values.rows();
  const std::vector<double> p = mean_assignment(values);
  std::vector<double> f(p.size(), 0.0);
  for (const std::uint64_t mask : membership(routing, 1))
    f[static_cast<std::size_t>(std::countr_zero(mask))] += 1 / static_cast<double>(tokens);
  double loss = 0;
  for (std::size_t k = 0; k < p.size(); ++k) loss += static_cast<double>(groups) * f[k] * p[k];
  const Shape shape = values.shape();
  return Variable::from_op(
      "balance_loss", one_number(loss), {g},
      [f, shape, tokens, groups](const Tensor& dy, Grads grads) {
        const double each =
            static_cast<double>(dy[0]) * static_cast<double>(groups) / static_cast<double>(tokens);
        Tensor dg(shape);
        for (Index n = 0; n < dg.size(); ++n)
          dg.data()[n] = static_cast<Real>(each * f[static_cast<std::size_t>(n % groups)]);
        grads[0].add(dg);
      });
}

Variable entropy_loss(const Variable& g, EntropyOf of) {
  const Tensor values = g.value();
  const Index groups = values.cols();
  const auto tokens = static_cast<double>(values.rows());
  const std::vector<double> p = mean_assignment(values);
  double negative_entropy = 0;
  if (of == EntropyOf::mean) {
    for (const double x : p) negative_entropy += x_log_x(x);
  } else {
    for (const Real x : values.span()) negative_entropy += x_log_x(static_cast<double>(x)) / tokens;
  }
  const double loss = std::log(static_cast<double>(groups)) + negative_entropy;
  return Variable::from_op(
      "entropy_loss", one_number(loss), {g},
      [p, values, of, groups, tokens](const Tensor& dy, Grads grads) {
        Tensor dg(values.shape());
        for (Index n = 0; n < dg.size(); ++n) {
          const double x = of == EntropyOf::mean ? p[static_cast<std::size_t>(n % groups)]
                                                 : static_cast<double>(values[n]);
          dg.data()[n] = static_cast<Real>(static_cast<double>(dy[0]) * x_log_x_slope(x) / tokens);
        }
        grads[0].add(dg);
      });
}

Variable auxiliary_loss(const Routing& routing, const AblationSettings& settings) {
  Variable sum;
  const auto add_term = [&](double weight, auto&& term) {
    if (weight == 0) return;
    const Variable weighted = scale(term(), static_cast<Real>(weight));
    sum = sum.defined() ? add(sum, weighted) : weighted;
  };
  add_term(settings.balance_loss, [&] { return balance_loss(routing); });
  add_term(settings.entropy_loss,
           [&] { return entropy_loss(routing.assignments, settings.entropy_of); });
  return sum;
}

}  // namespace focus
