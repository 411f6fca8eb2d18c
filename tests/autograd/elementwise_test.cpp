#include <cmath>
#include <functional>
#include <numbers>

#include "tests/support/gradcheck.h"

namespace focus {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct Case {
  const char* name;
  std::function<Variable(const Variable&)> op;
  std::function<double(double)> reference;
};
const std::vector<Case> kCases = {
    {"scale", [](const Variable& x) { return scale(x, Real(-2.5)); },
     [](double x) { return -2.5 * x; }},
    {"shift", [](const Variable& x) { return shift(x, Real(1.5)); },
     [](double x) { return x + 1.5; }},
    {"sigmoid", sigmoid, logistic},
    {"tanh", static_cast<Variable (*)(const Variable&)>(tanh),
     [](double x) { return std::tanh(x); }},
    {"gelu", gelu, [](double x) { return x * 0.5 * std::erfc(-x / std::numbers::sqrt2); }},
    {"gelu_tanh", gelu_tanh,
     [](double x) {
       return 0.5 * x *
              (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
     }},
    {"silu", silu, [](double x) { return x * logistic(x); }},
};

TEST(Elementwise, Values) {
  Tensor x = randn({3, 16384}, 1);  // several chunks
  Real* to = x.data();
  for (const double special : {0.0, 0.1, 0.75, 1.0, 2.5, 6.0, 30.0, 1e4})
    for (const double sign : {1, -1}) *to++ = static_cast<Real>(sign * special);
  for (const Case& c : kCases) {
    const Variable in = leaf(x), out = c.op(in);
    backward(out);
    for (Index i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(out.value()[i], c.reference(x[i]),
                  tolerance(2e-6, 1e-14) * std::max(1.0, std::abs(double(x[i]))))
          << c.name << " at " << x[i];
      ASSERT_TRUE(std::isfinite(in.grad()[i])) << c.name << " at " << x[i];
    }
  }
}

TEST(Elementwise, Gradients) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    expect_gradients([&](const Variables& v) { return c.op(v[0]); },
                     {tensor_of({3, 3}, {0, 0.3, -0.3, 1, -1.2, 2, -2, 4, -4})});
  }
}

TEST(Elementwise, DropoutDropsItsShareAndScalesTheRest) {
  constexpr Index kSize = 200000;  // several chunks
  Tensor ones({kSize});
  std::ranges::fill(ones.span(), Real(1));
  const Tensor y = dropout(ones, 0.25, 3).value();
  Index dropped = 0;
  for (const Real v : y.span()) {
    if (v == 0)
      ++dropped;
    else
      ASSERT_EQ(v, static_cast<Real>(1 / 0.75));
  }
  EXPECT_NEAR(static_cast<double>(dropped) / kSize, 0.25, 0.005);  // five standard deviations
  const Tensor again = dropout(ones, 0.25, 3).value(), other = dropout(ones, 0.25, 4).value();
  EXPECT_TRUE(std::ranges::equal(again.span(), y.span()));
  EXPECT_FALSE(std::ranges::equal(other.span(), y.span()));
  EXPECT_THROW(dropout(ones, 1, 3), std::invalid_argument);
  expect_gradients([](const Variables& v) { return dropout(v[0], 0.5, 9); },
                   {tensor_of({3, 3}, {0, 0.3, -0.3, 1, -1.2, 2, -2, 4, -4})});
}

TEST(Log, Gradient) {
  expect_gradients([](const Variables& v) { return log(v[0]); }, {uniform({2, 3}, 1, 0.5, 3)});
}

TEST(Binary, Gradients) {
  const std::vector<Tensor> inputs = {randn({3, 5}, 1), randn({3, 5}, 2)};
  expect_gradients([](const Variables& v) { return add(v[0], v[1]); }, inputs);
  expect_gradients([](const Variables& v) { return multiply(v[0], v[1]); }, inputs);
  expect_gradients([](const Variables& v) { return swiglu(v[0], v[1]); }, inputs);
  expect_gradients([](const Variables& v) { return multiply(v[0], v[0]); }, {inputs[0]});
}

TEST(Binary, OneSideMayBeAConstant) {
  const Variable x = leaf(randn({4}, 1)), constant(randn({4}, 2));
  for (const auto op : {add, multiply, swiglu}) {
    backward(op(x, constant));
    backward(op(constant, x));
  }
  EXPECT_TRUE(x.grad().defined());
}

TEST(Binary, RejectDifferentShapes) {
  const Variable a(Tensor::zeros({2, 3})), b(Tensor::zeros({3, 2}));
  EXPECT_THROW(add(a, b), std::invalid_argument);
  EXPECT_THROW(multiply(a, b), std::invalid_argument);
  EXPECT_THROW(swiglu(a, b), std::invalid_argument);
}

}  // namespace
}  // namespace focus
