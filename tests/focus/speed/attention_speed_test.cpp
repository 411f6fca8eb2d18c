#include <gtest/gtest.h>

#include <cmath>

#include "focus/speed/speed.h"

namespace focus {
namespace {

constexpr auto kSilent = [](std::string_view) {};

AttentionSpeedOptions tiny() {
  AttentionSpeedOptions options;
  options.num_groups = 4;
  options.local_window = 8;
  options.heads = 2;
  options.head_dim = 8;
  options.repeats = 1;
  return options;
}

TEST(AttentionSpeed, PairsAndIdealSpeedup) {
  AttentionSpeedOptions options = tiny();
  const AttentionSpeed some = measure_attention(options, 150, kSilent);
  EXPECT_EQ(some.pairs.all, 150 * 151 / 2);
  std::int64_t attended = 0;
  ASSERT_EQ(some.sets.size(), 150u);
  for (std::size_t i = 0; i < 150; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      attended += i - j <= 8 || (some.sets[i] & some.sets[j]) != 0 ? 1 : 0;
  EXPECT_EQ(some.pairs.attended, attended);
  EXPECT_LT(some.pairs.attended, some.pairs.all);
  EXPECT_DOUBLE_EQ(some.ideal_speedup(),
                   static_cast<double>(some.pairs.all) / static_cast<double>(some.pairs.attended));
  EXPECT_GT(some.speedup(), 0);
  EXPECT_LT(some.speedup_with_routing(), some.speedup());
  EXPECT_EQ(some.flops_per_pair, 4 * 2 * 8);
  options.top_k = options.num_groups;
  EXPECT_EQ(measure_attention(options, 150, kSilent).ideal_speedup(), 1);
}

TEST(AttentionSpeed, RoutedGroupsAreNearlyEqual) {
  const AttentionSpeed speed = measure_attention(tiny(), 2000, kSilent);
  EXPECT_GE(speed.largest_group, 0.25);
  EXPECT_LT(speed.largest_group, 0.35);
  EXPECT_EQ(speed.routing.seconds.size(), speed.focus.seconds.size());
}

TEST(AttentionSpeed, BackwardCountsItsProducts) {
  AttentionSpeedOptions options = tiny();
  options.backward = true;
  options.hard_gate = HardGate::keep;
  const AttentionSpeed speed = measure_attention(options, 300, kSilent);
  EXPECT_EQ(speed.flops_per_pair, 4 * 2 * 8 * 3.5);
  EXPECT_LE(speed.focus.fastest(), speed.focus.seconds.back());
  EXPECT_GT(speed.dense.peak_bytes, 300u * 2 * 8 * sizeof(Real));  // the output at least
}

TEST(AttentionSpeed, LongerThanDenseUpToIsNotRun) {
  AttentionSpeedOptions options = tiny();
  options.dense_up_to = 64;
  EXPECT_FALSE(measure_attention(options, 64, kSilent).dense.seconds.empty());
  const AttentionSpeed longer = measure_attention(options, 65, kSilent);
  EXPECT_TRUE(longer.dense.seconds.empty());
  EXPECT_TRUE(std::isnan(longer.speedup()));
}

}  // namespace
}  // namespace focus
