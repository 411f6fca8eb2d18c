#include <cmath>
#include <limits>

#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Softmax, Value) {
  for (const Index cols : {1, 3, 50}) {
    const Tensor x = randn({4, cols}, 1, 3);
    const Tensor y = softmax(x).value(), lse = log_sum_exp(x).value();
    ASSERT_EQ(lse.shape(), (Shape{4}));
    for (Index r = 0; r < 4; ++r) {
      double sum = 0;
      for (Index c = 0; c < cols; ++c) sum += std::exp(static_cast<double>(x[r * cols + c]));
      EXPECT_NEAR(lse[r], std::log(sum), tolerance(2e-6, 1e-13));
      for (Index c = 0; c < cols; ++c)
        EXPECT_NEAR(y[r * cols + c], std::exp(static_cast<double>(x[r * cols + c])) / sum,
                    tolerance(1e-6, 1e-14));
    }
  }
}

TEST(Softmax, HugeTiedAndMaskedRows) {
  const Tensor x = tensor_of({4, 3}, {1e4, 1e4, -1e4,    //
                                      -1e4, -1e4, -1e4,  //
                                      -kInf, 2, -kInf,   //
                                      -kInf, -kInf, -kInf});
  const Tensor y = softmax(x).value(), lse = log_sum_exp(x).value();
  const std::vector<double> expected = {0.5, 0.5, 0, 1 / 3.0, 1 / 3.0, 1 / 3.0, 0, 1, 0, 0, 0, 0};
  for (Index i = 0; i < 12; ++i) EXPECT_NEAR(y[i], expected[static_cast<std::size_t>(i)], 1e-6);
  EXPECT_NEAR(lse[0], 1e4 + std::log(2), 1e-2);
  EXPECT_EQ(lse[2], 2);
  EXPECT_EQ(lse[3], -kInf);
}

TEST(Softmax, Gradients) {
  for (const Shape& shape : {Shape{1, 4}, Shape{2, 3, 5}, Shape{3, 1}}) {
    expect_gradients([](const Variables& v) { return softmax(v[0]); }, {randn(shape, 1)});
    expect_gradients([](const Variables& v) { return log_sum_exp(v[0]); }, {randn(shape, 1)});
  }
  // Ties, and a distance at which the smaller ones vanish.
  expect_gradients([](const Variables& v) { return softmax(v[0]); },
                   {tensor_of({2, 3}, {1, 1, 1, 60, 0, 0})});
}

TEST(Softmax, MaskedEntriesReceiveNothing) {
  const Variable x = leaf(tensor_of({2, 3}, {-kInf, 1, 2, -kInf, -kInf, -kInf}));
  backward(multiply(softmax(x), Variable(randn({2, 3}, 1))));
  EXPECT_EQ(x.grad()[0], 0);
  for (const Index i : {3, 4, 5}) EXPECT_EQ(x.grad()[i], 0);
}

TEST(LogSumExp, RejectsNothingToSum) {
  EXPECT_THROW(log_sum_exp(Tensor::zeros({2, 0})), std::invalid_argument);
  EXPECT_THROW(log_sum_exp(Tensor::zeros({})), std::invalid_argument);
}

}  // namespace
}  // namespace focus
