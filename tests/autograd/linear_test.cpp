#include "autograd/gemm/gemm.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

TEST(Linear, Value) {
  const Tensor x = randn({2, 3, 5}, 1), w = randn({4, 5}, 2), b = randn({4}, 3);
  const Tensor y = linear(x, w, b).value(), without = linear(x, w, {}).value();
  ASSERT_EQ(y.shape(), (Shape{2, 3, 4}));
  for (Index r = 0; r < 6; ++r)
    for (Index o = 0; o < 4; ++o) {
      double sum = 0;
      for (Index i = 0; i < 5; ++i) sum += static_cast<double>(x[r * 5 + i]) * w[o * 5 + i];
      EXPECT_NEAR(without[r * 4 + o], sum, 2e-6);
      EXPECT_NEAR(y[r * 4 + o], sum + b[o], 2e-6);
    }
}

TEST(Linear, Gradient) {
  const auto f = [](const Variables& v) {
    return linear(v[0], v[1], v.size() > 2 ? v[2] : Variable());
  };
  expect_gradients(f, {randn({2, 3, 5}, 1), randn({4, 5}, 2), randn({4}, 3)});
  expect_gradients(f, {randn({1, 7}, 1), randn({1, 7}, 2)});  // one row, one output
}

TEST(Linear, RejectsMismatchedShapes) {
  const Variable x(Tensor::zeros({2, 3})), w(Tensor::zeros({4, 3}));
  EXPECT_THROW(linear(x, Tensor::zeros({4, 5}), {}), std::invalid_argument);
  EXPECT_THROW(linear(x, Tensor::zeros({3}), {}), std::invalid_argument);
  EXPECT_THROW(linear(x, w, Tensor::zeros({3})), std::invalid_argument);
}

// Frozen parts cost neither products nor memory.

TEST(Linear, FrozenWeightGetsNoGradient) {
  const Index rows = 10, in = 6, out = 4;
  const Tensor x = randn({rows, in}, 1), w = randn({out, in}, 2);
  const auto product = static_cast<std::uint64_t>(rows * in * out);
  const auto backward_products = [&](bool x_wanted, bool w_wanted) {
    Variable input(x), weight(w);
    input.set_requires_grad(x_wanted);
    weight.set_requires_grad(w_wanted);
    const Variable y = linear(input, weight, {});
    const std::uint64_t before = multiply_adds();
    backward(y);
    return multiply_adds() - before;
  };
  EXPECT_EQ(backward_products(true, false), product);  // dx only
  EXPECT_EQ(backward_products(false, true), product);  // dW only
  EXPECT_EQ(backward_products(true, true), 2 * product);
  EXPECT_FALSE(linear(x, w, {}).requires_grad());
}

TEST(Linear, FrozenWeightKeepsNoInput) {
  const Variable a = leaf(randn({64, 256}, 1)), w(randn({128, 256}, 2));
  const std::size_t before = pool_stats().live;
  const Variable y = linear(scale(a, 2), w, {});  // scale keeps nothing either
  EXPECT_EQ(pool_stats().live - before, 64 * 128 * sizeof(Real));
  const Variable trained = leaf(w.value());
  const std::size_t again = pool_stats().live;
  const Variable z = linear(scale(a, 2), trained, {});
  EXPECT_EQ(pool_stats().live - again, (64 * 128 + 64 * 256) * sizeof(Real));
}

TEST(Matmul, Value) {
  const Tensor a = randn({2, 3, 4}, 1), b = randn({2, 4, 5}, 2);
  const Tensor y = matmul(a, b).value();
  ASSERT_EQ(y.shape(), (Shape{2, 3, 5}));
  for (Index n = 0; n < 2; ++n)
    for (Index i = 0; i < 3; ++i)
      for (Index j = 0; j < 5; ++j) {
        double sum = 0;
        for (Index k = 0; k < 4; ++k)
          sum += static_cast<double>(a[(n * 3 + i) * 4 + k]) * b[(n * 4 + k) * 5 + j];
        EXPECT_NEAR(y[(n * 3 + i) * 5 + j], sum, 2e-6);
      }
}

TEST(Matmul, Gradient) {
  const auto f = [](const Variables& v) { return matmul(v[0], v[1]); };
  expect_gradients(f, {randn({2, 3, 4}, 1), randn({2, 4, 5}, 2)});
  expect_gradients(f, {randn({1, 1, 3}, 1), randn({1, 3, 1}, 2)});
}

TEST(Matmul, RejectsMismatchedShapes) {
  EXPECT_THROW(matmul(Tensor::zeros({2, 3, 4}), Tensor::zeros({2, 3, 4})), std::invalid_argument);
  EXPECT_THROW(matmul(Tensor::zeros({1, 3, 4}), Tensor::zeros({2, 4, 3})), std::invalid_argument);
  EXPECT_THROW(matmul(Tensor::zeros({3, 4}), Tensor::zeros({4, 3})), std::invalid_argument);
}

TEST(Transpose, Value) {
  const Tensor x = randn({2, 3, 4, 5}, 1);
  const Tensor y = transpose(x, 3, 1).value();
  ASSERT_EQ(y.shape(), (Shape{2, 5, 4, 3}));
  for (Index a = 0; a < 2; ++a)
    for (Index b = 0; b < 3; ++b)
      for (Index c = 0; c < 4; ++c)
        for (Index d = 0; d < 5; ++d)
          ASSERT_EQ(y[((a * 5 + d) * 4 + c) * 3 + b], x[((a * 3 + b) * 4 + c) * 5 + d]);
  EXPECT_TRUE(same_bits(transpose(x, 2, 2).value(), x));
}

TEST(Transpose, Gradient) {
  expect_gradients([](const Variables& v) { return transpose(v[0], 0, 2); }, {randn({2, 3, 4}, 1)});
  expect_gradients([](const Variables& v) { return transpose(v[0], 1, 2); },
                   {randn({2, 3, 1, 2}, 1)});
}

TEST(Transpose, RejectsDimensionsThatAreNotThere) {
  EXPECT_THROW(transpose(Tensor::zeros({2, 3}), 0, 2), std::invalid_argument);
  EXPECT_THROW(transpose(Tensor::zeros({2, 3}), -1, 0), std::invalid_argument);
}

TEST(Reshape, ValueGradientAndError) {
  const Tensor x = randn({2, 6}, 1);
  EXPECT_EQ(reshape(x, {3, 4}).value()[7], x[7]);
  expect_gradients([](const Variables& v) { return tanh(reshape(v[0], {3, 4})); }, {x});
  EXPECT_THROW(reshape(x, {5}), std::invalid_argument);
}

TEST(Embedding, Value) {
  const Tensor w = randn({5, 3}, 1);
  const std::vector<std::int32_t> ids = {4, 0, 4, 2};
  const Tensor y = embedding(w, ids, {2, 2}).value();
  ASSERT_EQ(y.shape(), (Shape{2, 2, 3}));
  for (Index t = 0; t < 4; ++t)
    for (Index c = 0; c < 3; ++c) EXPECT_EQ(y[t * 3 + c], w[ids[t] * 3 + c]);
}

TEST(Embedding, GradientOfRepeatedIds) {
  expect_gradients(
      [](const Variables& v) {
        return embedding(v[0], std::vector<std::int32_t>{1, 1, 0, 1}, {4});
      },
      {randn({3, 2}, 1)});
}

TEST(Embedding, RejectsIdsOutside) {
  const Variable w(Tensor::zeros({5, 3}));
  for (const std::int32_t id : {-1, 5})
    EXPECT_THROW(embedding(w, std::vector<std::int32_t>{0, id}, {2}), std::invalid_argument);
  EXPECT_THROW(embedding(w, std::vector<std::int32_t>{0, 1}, {3}), std::invalid_argument);
  EXPECT_THROW(embedding(Tensor::zeros({5}), std::vector<std::int32_t>{0}, {1}),
               std::invalid_argument);
}

}  // namespace
}  // namespace focus
