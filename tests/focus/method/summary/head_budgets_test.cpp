#include "focus/method/summary/head_budgets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "tests/support/random.h"

namespace focus {
namespace {

using Budgets = std::vector<std::vector<Index>>;

Tensor needs_of(const std::vector<Real>& numbers) {
  return Tensor::from({std::ssize(numbers)}, numbers);
}

TEST(HeadBudgets, AreInProportionToAPowerOfTheNeed) {
  const auto need = [](double weight) { return static_cast<Real>(std::pow(weight, 1 / 0.35)); };
  EXPECT_EQ(head_budgets({needs_of({need(1), need(2)}), needs_of({need(3), need(4)})}, 10, 100),
            (Budgets{{4, 8}, {12, 16}}));
}

TEST(HeadBudgets, OfEqualNeedsAreTheMean) {
  for (const Index mean : {1, 2, 7, 63})
    EXPECT_EQ(head_budgets({needs_of({0.25, 0.25, 0.25}), needs_of({0.25})}, mean, 64),
              (Budgets{{mean, mean, mean}, {mean}}));
}

TEST(HeadBudgets, GiveEachHeadAGroupAndNoneMoreThanThereAre) {
  EXPECT_EQ(head_budgets({needs_of({0, 1e-12, 1000, 1000})}, 4, 7), (Budgets{{1, 1, 7, 7}}));
}

TEST(HeadBudgets, AreAllOfThemOrNoneAtTheEnds) {
  const std::vector<Tensor> needs{needs_of({1, 4, 0})};
  EXPECT_EQ(head_budgets(needs, 0, 8), (Budgets{{0, 0, 0}}));
  EXPECT_EQ(head_budgets(needs, 8, 8), (Budgets{{8, 8, 8}}));
  EXPECT_EQ(head_budgets({needs_of({0, 0})}, 3, 8), (Budgets{{3, 3}}));
}

TEST(HeadBudgets, StayJustBelowTheMean) {
  for (std::uint64_t seed = 1; seed < 30; ++seed) {
    std::vector<Tensor> needs;
    for (int layer = 0; layer < 5; ++layer) needs.push_back(uniform({9}, seed * 7 + layer, 0, 1));
    for (const Index mean : {1, 3, 8, 30, 63}) {
      Index sum = 0;
      for (const auto& of_layer : head_budgets(needs, mean, 64))
        sum = std::accumulate(of_layer.begin(), of_layer.end(), sum);
      EXPECT_LE(sum, 45 * mean) << seed;
      EXPECT_GE(sum, 45 * mean - 45 / 2) << seed;
    }
  }
}

TEST(HeadBudgets, AsText) {
  EXPECT_EQ(budgets_text({needs_of({1, 1}), needs_of({1})}, 2, 8),
            "2 to 2 of 8 groups, 2.0 on average");
  EXPECT_EQ(budgets_text({needs_of({0, 1e-12, 1000, 1000})}, 4, 7),
            "1 to 7 of 7 groups, 4.0 on average; 2 of 4 heads select all");
}

TEST(HeadBudgets, RefuseWhatIsNoNeed) {
  EXPECT_THROW(head_budgets({needs_of({1, -1})}, 2, 8), std::invalid_argument);
  EXPECT_THROW(head_budgets({needs_of({std::numeric_limits<Real>::quiet_NaN()})}, 2, 8),
               std::invalid_argument);
}

}  // namespace
}  // namespace focus
