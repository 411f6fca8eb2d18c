#include "focus/evaluation/statistics/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace focus {
namespace {

using C = TokenCategory;

/// Eight tokens in three groups, the last one empty.
GroupAssignments eight_tokens() {
  return {.groups = 3,
          .group_of_token = {0, 0, 0, 1, 0, 1, 1, 0},
          .confidence = {1, 1, 0.5F, 0.75F, 0.5F, 0.25F, 0.5F, 0.5F}};
}
const std::vector<std::int32_t> kIds = {7, 7, 9, 9, 7, 4, 4, 5};

TEST(GroupStatistics, SizesAndConfidence) {
  EXPECT_EQ(group_sizes(eight_tokens()), (std::vector<std::int64_t>{5, 3, 0}));
  const std::vector<double> confidence = group_confidence(eight_tokens());
  EXPECT_NEAR(confidence[0], 3.5 / 5, 1e-12);
  EXPECT_NEAR(confidence[1], 1.5 / 3, 1e-12);
  EXPECT_EQ(confidence[2], 0);
}

TEST(GroupStatistics, TypicalTokens) {
  const auto typical = typical_tokens(kIds, eight_tokens(), 1, 2);
  ASSERT_EQ(typical.size(), 3u);
  // Group 0 has 7 three times (mean confidence 5/6), 9 and 5 once each (1/2).
  ASSERT_EQ(typical[0].by_confidence.size(), 2u);
  EXPECT_EQ(typical[0].by_confidence[0].id, 7);
  EXPECT_EQ(typical[0].by_confidence[0].count, 3);
  EXPECT_NEAR(typical[0].by_confidence[0].confidence, 2.5 / 3, 1e-12);
  EXPECT_EQ(typical[0].by_confidence[1].id, 5);  // of equals the lower id
  // 3/5 of the group over 3/8 of all; 5 has the same lift, 1/5 over 1/8, but is rarer.
  EXPECT_EQ(typical[0].by_lift[0].id, 7);
  EXPECT_NEAR(typical[0].by_lift[0].lift, (3.0 / 5) / (3.0 / 8), 1e-12);
  EXPECT_EQ(typical[0].by_lift[1].id, 5);
  // Group 1: 4 is all its own, 9 half.
  EXPECT_EQ(typical[1].by_lift[0].id, 4);
  EXPECT_NEAR(typical[1].by_lift[1].lift, (1.0 / 3) / (2.0 / 8), 1e-12);
  EXPECT_EQ(typical[1].by_confidence[0].id, 9);
  EXPECT_TRUE(typical[2].by_lift.empty());
  // Rare ones are left out.
  EXPECT_EQ(typical_tokens(kIds, eight_tokens(), 2, 9)[0].by_lift.size(), 1u);
}

TEST(GroupStatistics, Purity) {
  const std::vector<C> categories = {C::punctuation, C::punctuation, C::word,       C::determiner,
                                     C::punctuation, C::determiner,  C::connective, C::digits};
  const Purity p = purity(eight_tokens(), categories);
  EXPECT_EQ(p.largest[0], C::punctuation);
  EXPECT_EQ(p.largest[1], C::determiner);
  EXPECT_NEAR(p.shares[0][static_cast<std::size_t>(C::punctuation)], 3.0 / 5, 1e-12);
  EXPECT_NEAR(p.shares[1][static_cast<std::size_t>(C::connective)], 1.0 / 3, 1e-12);
  EXPECT_NEAR(p.purity, (3 + 2) / 8.0, 1e-12);
  EXPECT_NEAR(p.base, 3 / 8.0, 1e-12);
  // Words begin at 1 of the 5 and at all 3: 4 + 3 are as their group, 4 as all.
  EXPECT_NEAR(p.word_beginnings, 7 / 8.0, 1e-12);
  EXPECT_NEAR(p.word_beginnings_base, 4 / 8.0, 1e-12);
  EXPECT_GT(p.information, 0.3);
  EXPECT_LT(p.information, 0.9);
}

}  // namespace
}  // namespace focus
