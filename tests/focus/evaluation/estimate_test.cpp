#include "focus/evaluation/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace focus {
namespace {

TEST(Estimate, IsTheMeanAndItsStandardError) {
  const Estimate e = estimate(std::vector<double>{1, 0, 0, 1, 1});
  EXPECT_DOUBLE_EQ(e.value, 0.6);
  EXPECT_DOUBLE_EQ(e.error, std::sqrt(0.3 / 5));  // sample variance 1.2 / 4
  EXPECT_EQ(estimate(std::vector<double>{2}).value, 2);
  EXPECT_EQ(estimate(std::vector<double>{2}).error, 0);
  EXPECT_EQ(estimate({}).value, 0);
}

TEST(Estimate, OfSumsIsTheSame) {
  const std::vector<double> values = {0.3, -1.2, 2.5, 0, 0.75};
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  const Estimate all = estimate(values), sums = estimate_of_sums(5, sum, squares);
  EXPECT_DOUBLE_EQ(sums.value, all.value);
  EXPECT_NEAR(sums.error, all.error, 1e-15);
  EXPECT_EQ(estimate_of_sums(1, 2, 4).error, 0);
  // Equal values whose squares were rounded on the way: no root of a negative number.
  EXPECT_EQ(estimate_of_sums(3, 0.3, 0.03 - 1e-17).error, 0);
  EXPECT_EQ(estimate_of_sums(0, 0, 0).error, 0);
}

}  // namespace
}  // namespace focus
