#include "focus/method/grouping/group_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace focus {
namespace {

TEST(GroupStatistics, EntropyOfTheSizes) {
  GroupStatistics even{.sizes = {5, 5, 5, 5}, .tokens = 20};
  EXPECT_NEAR(even.size_entropy(), std::log(4.0), 1e-12);
  GroupStatistics one{.sizes = {0, 20}, .tokens = 20};
  EXPECT_EQ(one.size_entropy(), 0);
  EXPECT_EQ(GroupStatistics{}.size_entropy(), 0);
  // Two heads of two groups: one even, one with a quarter and three quarters.
  GroupStatistics heads;
  heads.add_sizes(std::vector<std::uint8_t>{0, 1, 1, 1, 0, 1, 1, 0}, 2, 2);
  EXPECT_EQ(heads.tokens, 4);
  EXPECT_EQ(heads.sizes, (std::vector<std::int64_t>{2, 2, 1, 3}));
  EXPECT_NEAR(heads.size_entropy(),
              (std::log(2.0) + 0.25 * std::log(4.0) + 0.75 * std::log(4.0 / 3)) / 2, 1e-12);
  EXPECT_EQ(heads.weighed, 0);  // there are no assignments of group_ids
}

}  // namespace
}  // namespace focus
