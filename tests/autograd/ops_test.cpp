#include <cmath>
#include <limits>

#include "autograd/simd/kernels.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Softmax, HugeTiedAndMaskedRows) {
  const Tensor x = tensor_of({4, 3}, {1e4, 1e4, -1e4,    //
                                      -1e4, -1e4, -1e4,  //
                                      -kInf, 2, -kInf,   //
                                      -kInf, -kInf, -kInf});
  const Tensor y = softmax(x).value(), lse = log_sum_exp(x).value();
  const std::vector<double> expected = {0.5, 0.5, 0, 1 / 3.0, 1 / 3.0, 1 / 3.0, 0, 1, 0, 0, 0, 0};
  for (Index i = 0; i < 12; ++i) EXPECT_NEAR(y[i], expected[i], 1e-6);
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

constexpr Real kEps = Real(1e-5);

TEST(Norms, ConstantAndZeroRowsStayFinite) {
  const Variable x = leaf(tensor_of({2, 3}, {4, 4, 4, 0, 0, 0})), w(Tensor::full({3}, 1));
  const Variable y = add(layer_norm(x, w, {}, kEps), rms_norm(x, w, kEps));
  backward(y);
  for (Index i = 0; i < 6; ++i) EXPECT_TRUE(std::isfinite(x.grad()[i]));
  EXPECT_NEAR(y.value()[0], 1, 1e-5);  // 0 of the centred one, 1 of the other
  EXPECT_EQ(y.value()[3], 0);
}

TEST(Norms, Gradients) {
  for (const Index rows : {1, 4}) {
    const std::vector<Tensor> inputs = {randn({rows, 6}, 1), randn({6}, 2), randn({6}, 3)};
    expect_gradients([](const Variables& v) { return layer_norm(v[0], v[1], v[2], kEps); }, inputs);
    expect_gradients([](const Variables& v) { return layer_norm(v[0], v[1], {}, kEps); },
                     {inputs[0], inputs[1]});
    expect_gradients([](const Variables& v) { return rms_norm(v[0], v[1], kEps); },
                     {inputs[0], inputs[1]});
  }
}

TEST(Norms, RejectMismatchedShapes) {
  const Variable x(Tensor::zeros({2, 3})), w(Tensor::zeros({3})), wrong(Tensor::zeros({4}));
  EXPECT_THROW(layer_norm(x, wrong, {}, kEps), std::invalid_argument);
  EXPECT_THROW(layer_norm(x, w, wrong, kEps), std::invalid_argument);
  EXPECT_THROW(rms_norm(x, wrong, kEps), std::invalid_argument);
}

/// Angles t * (i + 1) / 3 for positions t and pairs i.
RotaryTable table_of(Index seq_len, Index half) {
  RotaryTable table{Tensor({seq_len, half}), Tensor({seq_len, half})};
  for (Index t = 0; t < seq_len; ++t)
    for (Index i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t * (i + 1)) / 3;
      table.cos.data()[t * half + i] = static_cast<Real>(std::cos(angle));
      table.sin.data()[t * half + i] = static_cast<Real>(std::sin(angle));
    }
  return table;
}

TEST(Rope, Gradient) {
  const RotaryTable table = table_of(5, 2);
  for (const Index seq_len : {1, 5})
    expect_gradients([&](const Variables& v) { return rope(v[0], table); },
                     {randn({2, seq_len, 2, 5}, 1)});
}

TEST(Rope, GoesOnFromAFirstPosition) {
  const RotaryTable table = table_of(5, 2);
  const Tensor x = randn({1, 5, 2, 5}, 1);
  const Tensor last = Tensor::from({1, 2, 2, 5}, x.span().last(20));
  EXPECT_TRUE(
      same_bits(rope(last, table, 3).value(),
                Tensor::from({1, 2, 2, 5}, std::as_const(rope(x, table).value()).span().last(20))));
  expect_gradients([&](const Variables& v) { return rope(v[0], table, 3); },
                   {randn({2, 2, 2, 5}, 1)});
  EXPECT_THROW(rope(last, table, 4), std::invalid_argument);
  EXPECT_THROW(rope(last, table, -1), std::invalid_argument);
}

TEST(Rope, RejectsATableThatDoesNotFit) {
  const RotaryTable table = table_of(4, 2);
  EXPECT_THROW(rope(Tensor::zeros({1, 5, 1, 4}), table), std::invalid_argument);  // too short
  EXPECT_THROW(rope(Tensor::zeros({1, 4, 1, 3}), table), std::invalid_argument);  // too wide
  EXPECT_THROW(rope(Tensor::zeros({4, 1, 4}), table), std::invalid_argument);
}

constexpr Real kCap = Real(1.5);

TEST(SoftCap, AllItsFormsAreOneFunction) {
  const simd::Kernels& kernels = simd::kernels();
  const Index n = 8 * kernels.vector;
  const Tensor x = randn({n}, 1, 4);
  const Tensor op = soft_cap(Variable(x), kCap).value();
  Tensor row = x.clone(), tile = x.clone(), slope({n});
  soft_cap(row.data(), n, kCap, slope.data());
  kernels.softcap_row(tile.data(), n, kCap);
  for (Index i = 0; i < n; ++i) {
    const double wanted = kCap * std::tanh(static_cast<double>(x[i]) / kCap);
    EXPECT_NEAR(soft_cap(x[i], kCap), wanted, tolerance(1e-6, 1e-14));
    EXPECT_NEAR(op[i], wanted, tolerance(1e-6, 1e-14));
    EXPECT_NEAR(row[i], wanted, tolerance(1e-6, 1e-14));
    EXPECT_NEAR(tile[i], wanted, tolerance(1e-6, 1e-14));
    EXPECT_NEAR(slope[i], 1 - wanted * wanted / (kCap * kCap), tolerance(2e-6, 1e-14));
  }
}

TEST(SoftCap, Gradient) {
  expect_gradients([](const Variables& v) { return soft_cap(v[0], kCap); }, {randn({3, 5}, 1, 2)});
}

TEST(SoftCap, NoneLeavesItAlone) {
  const Tensor x = randn({20}, 1, 4);
  Tensor row = x.clone(), slope({20});
  soft_cap(row.data(), 20, 0, slope.data());
  EXPECT_TRUE(same_bits(row, x));
  EXPECT_TRUE(same_bits(slope, Tensor::full({20}, 1)));
  EXPECT_TRUE(same_bits(soft_cap(Variable(x), 0).value(), x));
  EXPECT_EQ(soft_cap(x[0], 0), x[0]);
}

TEST(Slice, Value) {
  const Tensor x = randn({1, 5, 2, 3}, 1);
  const Tensor part = slice(x, 1, 4).value();
  ASSERT_EQ(part.shape(), (Shape{1, 3, 2, 3}));
  for (Index i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], x[6 + i]);
  EXPECT_EQ(slice(x, 2, 2).value().size(), 0);
}

TEST(Slice, Gradient) {
  expect_gradients([](const Variables& v) { return slice(v[0], 1, 4); }, {randn({1, 5, 2}, 1)});
  // Parts that overlap, and what is in none.
  expect_gradients(
      [](const Variables& v) {
        const Variable x = scale(v[0], 2);
        return add(slice(x, 0, 3), multiply(slice(x, 1, 4), slice(x, 2, 5)));
      },
      {randn({1, 6, 3}, 2)});
}

TEST(Concatenate, Value) {
  const std::vector<Variable> parts = {randn({1, 2, 3}, 1), randn({1, 0, 3}, 2),
                                       randn({1, 4, 3}, 3)};
  const Tensor all = concatenate(parts).value();
  ASSERT_EQ(all.shape(), (Shape{1, 6, 3}));
  for (Index i = 0; i < 6; ++i) EXPECT_EQ(all[i], parts[0].value()[i]);
  for (Index i = 0; i < 12; ++i) EXPECT_EQ(all[6 + i], parts[2].value()[i]);
}

TEST(Concatenate, Gradient) {
  expect_gradients(
      [](const Variables& v) {
        const std::vector<Variable> parts = {v[0], multiply(v[1], v[1]), v[0]};
        return concatenate(parts);
      },
      {randn({1, 2, 3}, 1), randn({1, 4, 3}, 2)});
}

TEST(Concatenate, PutsSlicesTogetherAgain) {
  const Tensor x = randn({1, 7, 2, 2}, 1);
  const std::vector<Variable> parts = {slice(x, 0, 3), slice(x, 3, 4), slice(x, 4, 7)};
  EXPECT_TRUE(same_bits(concatenate(parts).value(), x));
}

TEST(Slice, RejectsWhatIsNoRow) {
  EXPECT_THROW(slice(randn({2, 3, 4}, 1), 0, 1), std::invalid_argument);
  EXPECT_THROW(slice(randn({1, 3, 4}, 1), 2, 1), std::invalid_argument);
  EXPECT_THROW(slice(randn({1, 3, 4}, 1), 0, 4), std::invalid_argument);
  EXPECT_THROW(slice(randn({1, 3, 4}, 1), -1, 2), std::invalid_argument);
  EXPECT_THROW(concatenate({}), std::invalid_argument);
  const std::vector<Variable> unlike = {randn({1, 2, 3}, 1), randn({1, 2, 4}, 1)};
  EXPECT_THROW(concatenate(unlike), std::invalid_argument);
}

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

TEST(LinearKlDivergence, GradientOfAWeightThatLearnsFromAnother) {
  const Tensor reference = randn({4, 3}, 2);
  const Weight teacher(randn({7, 3}, 3));
  for (const Real cap : {Real(0), Real(1.5)})
    expect_gradients(
        [&](const Variables& in) {
          return linear_kl_divergence(in[0], reference, in[1], cap, &teacher);
        },
        {randn({4, 3}, 1), randn({7, 3}, 4)});
  // From the same weight, which is a constant then, the numbers are the same.
  const Tensor x = randn({4, 3}, 1);
  EXPECT_EQ(linear_kl_divergence(Variable(x), reference, teacher, 0, &teacher).value()[0],
            linear_kl_divergence(Variable(x), reference, teacher).value()[0]);
}

TEST(LinearKlDivergence, AWeightThatIsTrainedNeedsAnotherForTheReference) {
  Weight weight(Variable(randn({7, 3}, 3)));
  weight.set_requires_grad(true);
  EXPECT_THROW(linear_kl_divergence(Variable(randn({4, 3}, 1)), randn({4, 3}, 2), weight),
               std::invalid_argument);
}

TEST(LinearKlDivergence, OfItselfIsNothing) {
  const Tensor x = randn({5, 4}, 1), weight = randn({600, 4}, 3);
  EXPECT_NEAR(static_cast<double>(linear_kl_divergence(Variable(x), x, weight).value()[0]), 0,
              1e-6);
}

}  // namespace
}  // namespace focus
