#include "autograd/variable.h"

#include "tests/support/gradcheck.h"

namespace focus {
namespace {

TEST(Variable, GradientsAdd) {
  const Variable a = leaf(tensor_of({2}, {3, -5}));
  const Variable square = multiply(a, a);
  backward(add(square, scale(square, 2)));  // d/da 3a^2
  EXPECT_EQ(a.grad()[0], 18);
  EXPECT_EQ(a.grad()[1], -30);
  backward(scale(a, 4));  // a second pass adds to what is there
  EXPECT_EQ(a.grad()[0], 22);
}

TEST(Variable, SharedGradientIsCopiedBeforeItIsWritten) {
  const Variable a = leaf(tensor_of({2}, {1, 2})), b = leaf(tensor_of({2}, {3, 4}));
  backward(add(add(a, b), a));  // addition hands one buffer to both
  EXPECT_EQ(a.grad()[0], 2);
  EXPECT_EQ(b.grad()[0], 1);
  const Variable c = leaf(tensor_of({2}, {1, 2}));
  backward(add(c, c));
  EXPECT_EQ(c.grad()[1], 2);
}

TEST(Variable, WalkVisitsEachNodeOnceAfterAllThatUseIt) {
  std::vector<int> order;
  const auto node = [&order](int number, const Variable& x, const Variable& y) {
    return Variable::from_op("test", Tensor::full({1}, 0), {x, y},
                             [&order, number](const Tensor& dy, Grads grads) {
                               order.push_back(number);
                               for (const std::size_t i : {0, 1})
                                 if (grads[i].wanted()) grads[i].add(dy);
                             });
  };
  const Variable root = leaf(Tensor::full({1}, 0));
  const Variable n1 = node(1, root, {}), n2 = node(2, n1, root), n3 = node(3, n1, n1);
  const Variable n4 = node(4, n3, n2), n5 = node(5, n2, n4);
  backward(n5);
  EXPECT_EQ(order, (std::vector<int>{5, 4, 3, 2, 1}));
  // Paths from 5 to the root: 5 and 4 reach 2 (twice in all), 4 reaches 3; 2 gives root and 1.
  EXPECT_EQ(root.grad()[0], 2 + 2 + 2);
}

TEST(Variable, BackwardFreesWhatTheGraphHeld) {
  const Variable x = leaf(randn({64, 64}, 1));
  const std::size_t before = pool_stats().live;
  const Variable loss = sigmoid(multiply(tanh(x), x));
  // The value of tanh, the product and the loss.
  EXPECT_EQ(pool_stats().live, before + 3 * 4096 * sizeof(Real));
  backward(loss);
  EXPECT_EQ(pool_stats().live, before + 2 * 4096 * sizeof(Real));  // loss and x's gradient
}

TEST(Variable, NothingIsRecordedWithoutNeed) {
  const Variable constant(Tensor::full({2}, 1)), x = leaf(Tensor::full({2}, 1));
  EXPECT_FALSE(tanh(constant).requires_grad());
  EXPECT_TRUE(tanh(x).requires_grad());
  {
    const NoGrad outer;
    EXPECT_FALSE(grad_enabled());
    { const NoGrad inner; }
    EXPECT_FALSE(tanh(x).requires_grad());
  }
  EXPECT_TRUE(grad_enabled());
  Variable frozen = x;
  frozen.set_requires_grad(false);
  EXPECT_FALSE(tanh(frozen).requires_grad());
}

TEST(Variable, ZeroAndSetGradient) {
  Variable x = leaf(Tensor::full({2}, 1));
  EXPECT_FALSE(x.grad().defined());
  backward(x);
  x.set_grad(Tensor::full({2}, 7));
  EXPECT_EQ(x.grad()[1], 7);
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Variable, RejectsWhatCannotBe) {
  Variable constant(Tensor::full({2}, 1)), undefined;
  EXPECT_THROW(backward(constant), std::invalid_argument);
  EXPECT_THROW(constant.grad(), std::invalid_argument);
  EXPECT_THROW(constant.set_grad(Tensor::full({2}, 1)), std::invalid_argument);
  EXPECT_THROW(undefined.set_requires_grad(true), std::invalid_argument);
  const Variable x = leaf(Tensor::full({2}, 1));
  const Variable wrong =
      Variable::from_op("wrong", Tensor::full({2}, 1), {x, x}, [](const Tensor& dy, Grads grads) {
        grads[0].add(dy);
        grads[1].add(Tensor::full({3}, 1));
      });
  EXPECT_THROW(backward(wrong), std::invalid_argument);
}

TEST(Variable, DeepChainsNeedNoStack) {
  const Variable x = leaf(Tensor::full({1}, 1));
  const auto chain = [&] {
    Variable y = x;
    for (int i = 0; i < 100'000; ++i) y = shift(y, Real(1e-3));
    return y;
  };
  { const Variable dropped = chain(); }
  EXPECT_FALSE(x.grad().defined());
  backward(chain());
  EXPECT_EQ(x.grad()[0], 1);
}

// ---- recompute ---------------------------------------------------------------------------------

struct RecomputeResult {
  Tensor y, dx, dw, db;
};

RecomputeResult run_layer(bool again, bool x_wants_grad) {
  const Variable w = leaf(randn({5, 7}, 1)), b = leaf(randn({5}, 2));
  Variable x(randn({3, 7}, 3));
  x.set_requires_grad(x_wants_grad);
  const auto layer = [w, b](const Variable& input) {
    const Variable y = tanh(linear(input, w, b));
    return add(y, scale(multiply(y, y), Real(0.5)));
  };
  const Variable y = again ? recompute(layer, x) : layer(x);
  // x and w are used outside too: gradients of both paths add.
  backward(multiply(add(y, linear(x, w, {})), Variable(randn({3, 5}, 4))));
  return {y.value(), x_wants_grad ? x.grad() : Tensor::zeros({1}), w.grad(), b.grad()};
}

TEST(Recompute, EqualsPlainInValueAndGradients) {
  for (const bool x_wants_grad : {true, false}) {
    const RecomputeResult plain = run_layer(false, x_wants_grad);
    const RecomputeResult again = run_layer(true, x_wants_grad);
    EXPECT_TRUE(same_bits(again.y, plain.y));
    EXPECT_LE(relative_difference(again.dx, plain.dx), tolerance(1e-6, 1e-14));
    EXPECT_LE(relative_difference(again.dw, plain.dw), tolerance(1e-6, 1e-14));
    EXPECT_LE(relative_difference(again.db, plain.db), tolerance(1e-6, 1e-14));
  }
}

TEST(Recompute, Nested) {
  const auto inner = [](const Variable& x) { return multiply(tanh(x), x); };
  expect_gradients(
      [&](const Variables& v) {
        return recompute([&](const Variable& x) { return sigmoid(recompute(inner, x)); },
                         scale(v[0], 2));
      },
      {randn({2, 3}, 1)});
}

TEST(Recompute, KeepsOnlyItsInput) {
  const Variable x = leaf(randn({64, 64}, 1));
  const std::size_t before = pool_stats().live;
  const Variable y = recompute([](const Variable& v) { return sigmoid(tanh(multiply(v, v))); }, x);
  EXPECT_LE(pool_stats().live - before, 4096 * sizeof(Real) + 256);  // y, and the anchor's number
  backward(y);
  EXPECT_TRUE(x.grad().defined());
}

TEST(Recompute, RecordsNothingUnderNoGrad) {
  const Variable x = leaf(randn({4}, 1));
  const NoGrad guard;
  const Variable y = recompute([](const Variable& v) { return tanh(v); }, x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(same_bits(y.value(), tanh(x).value()));
}

}  // namespace
}  // namespace focus
