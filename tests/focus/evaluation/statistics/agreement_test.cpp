#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "focus/evaluation/statistics/statistics.h"

namespace focus {
namespace {

using Classes = std::vector<std::uint8_t>;

Contingency table_of(const Classes& a, const Classes& b) {
  const auto groups = [](const Classes& c) { return Index{*std::ranges::max_element(c)} + 1; };
  return contingency(a, groups(a), b, groups(b));
}

TEST(Agreement, ATableCountsPairsOfGroups) {
  const Contingency t = contingency(Classes{0, 2, 2, 0}, 3, Classes{1, 0, 1, 1}, 2);
  EXPECT_EQ(t.counts, (std::vector<std::int64_t>{0, 2, 0, 0, 1, 1}));
  EXPECT_EQ(t.row_sums(), (std::vector<std::int64_t>{2, 0, 2}));
  EXPECT_EQ(t.col_sums(), (std::vector<std::int64_t>{1, 3}));
  EXPECT_THROW(contingency(Classes{0, 1}, 2, Classes{0}, 2), std::invalid_argument);
  EXPECT_THROW(contingency(Classes{0, 2}, 2, Classes{0, 0}, 2), std::invalid_argument);
}

// By hand: 2 pairs together in both, 6 in the one, 3 in the other, of 15. Chance 6 * 3 / 15 = 1.2:
// (2 - 1.2) / (4.5 - 1.2).
TEST(Agreement, TheAdjustedRandIndexByHand) {
  EXPECT_NEAR(adjusted_rand_index(table_of({0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2})), 0.8 / 3.3,
              1e-12);
  // Two that know nothing of each other, below chance: (0 - 4/6) / (2 - 4/6).
  EXPECT_NEAR(adjusted_rand_index(table_of({0, 0, 1, 1}, {0, 1, 0, 1})), -0.5, 1e-12);
}

// By hand: H(a) = log 2, H(b) = log 3, I = 2/3 log 2.
TEST(Agreement, NormalisedMutualInformationByHand) {
  EXPECT_NEAR(normalised_mutual_information(table_of({0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2})),
              2 * (2.0 / 3 * std::log(2.0)) / (std::log(2.0) + std::log(3.0)), 1e-12);
  EXPECT_NEAR(normalised_mutual_information(table_of({0, 0, 1, 1}, {0, 1, 0, 1})), 0, 1e-12);
}

TEST(Agreement, OfTheSameGroupsByOtherNumbersAndOfOneGroup) {
  const auto expect = [](const Classes& a, const Classes& b, double same) {
    const Agreement found = agreement(table_of(a, b));
    EXPECT_NEAR(found.rand, same, 1e-12);
    EXPECT_NEAR(found.information, same, 1e-12);
  };
  expect({0, 0, 1, 2, 2, 1}, {2, 2, 0, 1, 1, 0}, 1);
  expect({0, 0, 0}, {0, 0, 0}, 1);
  expect({0, 0, 0, 0}, {0, 0, 1, 1}, 0);
}

TEST(Agreement, EntropyOfCounts) {
  EXPECT_NEAR(entropy_of_counts(std::vector<std::int64_t>{3, 3, 3, 3}), std::log(4.0), 1e-12);
  EXPECT_EQ(entropy_of_counts(std::vector<std::int64_t>{0, 9, 0}), 0);
  EXPECT_NEAR(entropy_of_counts(std::vector<std::int64_t>{1, 3}),
              0.25 * std::log(4.0) + 0.75 * std::log(4.0 / 3), 1e-12);
}

}  // namespace
}  // namespace focus
