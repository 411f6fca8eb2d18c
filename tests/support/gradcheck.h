#pragma once

#include "tests/support/compare.h"

namespace focus {

/// Central differences on every element of every input against backward, through a fixed random
/// projection of the output (a plain sum would hide whatever rows of softmax do: they sum to 1).
/// In double to 1e-6; the float build checks the same code to what float can show.
inline void expect_gradients(const std::function<Variable(const Variables&)>& f,
                             const std::vector<Tensor>& inputs) {
  const auto step = static_cast<Real>(tolerance(1e-2, 1e-5));
  const auto evaluate = [&](const std::vector<Tensor>& values) {
    Variables variables(values.begin(), values.end());
    const Tensor y = f(variables).value();
    const Tensor weights = randn(y.shape(), 99);
    double sum = 0;
    for (Index i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * weights[i];
    return sum;
  };
  std::vector<Tensor> gradients = value_and_gradients(inputs, f, 99);
  gradients.erase(gradients.begin());
  double worst = 0;
  std::string where;
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    ASSERT_TRUE(gradients[n].defined()) << "input " << n << " received no gradient";
    ASSERT_EQ(gradients[n].size(), inputs[n].size());
    for (Index i = 0; i < inputs[n].size(); ++i) {
      std::vector<Tensor> moved = inputs;
      moved[n] = inputs[n].clone();
      moved[n].data()[i] = inputs[n][i] + step;
      const double above = evaluate(moved);
      moved[n].data()[i] = inputs[n][i] - step;
      const double numeric = (above - evaluate(moved)) / (2 * static_cast<double>(step));
      const double analytic = static_cast<double>(gradients[n][i]);
      const double error = std::abs(numeric - analytic) / std::max(1.0, std::abs(numeric));
      if (!(error <= worst)) {
        worst = error;
        where = fmt::format("input {} element {}: backward {}, differences {}", n, i, analytic,
                            numeric);
      }
    }
  }
  EXPECT_LE(worst, tolerance(3e-2, 1e-6)) << where;
}

}  // namespace focus
