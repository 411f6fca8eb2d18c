#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

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

}  // namespace
}  // namespace focus
