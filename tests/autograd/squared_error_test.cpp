#include "tests/support/gradcheck.h"

namespace focus {
namespace {

TEST(RelativeSquaredError, IsTheErrorOverTheReference) {
  const Tensor x = Tensor::from({2, 2}, std::vector<Real>{1, 2, 3, 5});
  const Tensor reference = Tensor::from({2, 2}, std::vector<Real>{1, 2, 3, 4});
  EXPECT_NEAR(static_cast<double>(relative_squared_error(Variable(x), reference).value()[0]),
              1.0 / 30, 1e-7);
}

TEST(RelativeSquaredError, Gradient) {
  const Tensor reference = randn({3, 5}, 2);
  expect_gradients([&](const Variables& in) { return relative_squared_error(in[0], reference); },
                   {randn({3, 5}, 1)});
}

TEST(RelativeSquaredError, AReferenceOfZerosIsNoDivision) {
  EXPECT_EQ(relative_squared_error(Variable(Tensor::full({3}, 2)), Tensor::zeros({3})).value()[0],
            Real(12));
}

TEST(LinearKlDivergence, IsThatOfTheTwoSoftmaxes) {
  const Tensor x = randn({4, 3}, 1), reference = randn({4, 3}, 2), weight = randn({7, 3}, 3);
  for (const Real cap : {Real(0), Real(1.5)}) {
    double expected = 0;
    for (Index row = 0; row < 4; ++row) {
      const auto log_softmax = [&](const Tensor& from) {
        std::vector<double> logits(7);
        double sum = 0;
        for (std::size_t i = 0; i < 7; ++i) {
          double dot = 0;
          for (Index d = 0; d < 3; ++d)
            dot += static_cast<double>(from[row * 3 + d]) *
                   static_cast<double>(weight[static_cast<Index>(i) * 3 + d]);
          logits[i] =
              cap > 0 ? static_cast<double>(cap) * std::tanh(dot / static_cast<double>(cap)) : dot;
          sum += std::exp(logits[i]);
        }
        for (double& logit : logits) logit -= std::log(sum);
        return logits;
      };
      const auto p = log_softmax(reference), q = log_softmax(x);
      for (std::size_t i = 0; i < 7; ++i) expected += std::exp(p[i]) * (p[i] - q[i]) / 4;
    }
    EXPECT_NEAR(
        static_cast<double>(linear_kl_divergence(Variable(x), reference, weight, cap).value()[0]),
        expected, 1e-6);
    double mean = 0;
    for (const double row : linear_kl_divergence_rows(x, reference, weight, cap)) mean += row / 4;
    EXPECT_NEAR(mean, expected, 1e-6);
  }
}

TEST(LinearKlDivergence, Gradient) {
  const Tensor reference = randn({4, 3}, 2), weight = randn({7, 3}, 3);
  for (const Real cap : {Real(0), Real(1.5)})
    expect_gradients(
        [&](const Variables& in) { return linear_kl_divergence(in[0], reference, weight, cap); },
        {randn({4, 3}, 1)});
}

TEST(LinearKlDivergence, OfItselfIsNothing) {
  const Tensor x = randn({5, 4}, 1), weight = randn({600, 4}, 3);
  EXPECT_NEAR(static_cast<double>(linear_kl_divergence(Variable(x), x, weight).value()[0]), 0,
              1e-6);
}

}  // namespace
}  // namespace focus
