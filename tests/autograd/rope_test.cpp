#include <cmath>

#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

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

TEST(Rope, RotatesPairsAndLeavesTheRest) {
  const Index batch = 2, seq_len = 4, heads = 3, head_dim = 7, half = 2;
  const Tensor x = randn({batch, seq_len, heads, head_dim}, 1);
  const Tensor y = rope(x, table_of(6, half)).value();  // a table for longer sequences
  for (Index n = 0; n < batch * seq_len * heads; ++n) {
    const Index t = n / heads % seq_len;
    for (Index c = 0; c < head_dim; ++c) {
      double expected = x[n * head_dim + c];
      if (c < 2 * half) {
        const double angle = static_cast<double>(t * (c % half + 1)) / 3;
        const double other = x[n * head_dim + (c + half) % (2 * half)];
        expected = expected * std::cos(angle) + (c < half ? -1 : 1) * other * std::sin(angle);
      }
      EXPECT_NEAR(y[n * head_dim + c], expected, 2e-6) << "row " << n << " column " << c;
    }
  }
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

}  // namespace
}  // namespace focus
