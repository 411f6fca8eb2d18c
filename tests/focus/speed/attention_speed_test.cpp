#include "focus/speed/attention_speed.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

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

TEST(AttentionSpeed, RandomSetsHoldTopKGroups) {
  for (const int top_k : {1, 3, 5})
    for (const std::uint64_t set : random_sets(200, 5, top_k, 7)) {
      EXPECT_EQ(std::popcount(set), top_k);
      EXPECT_LT(set, 32u);
    }
}

TEST(AttentionSpeed, IdealIsThatOfTheSetsThatWereRun) {
  AttentionSpeedOptions options = tiny();
  options.assignment = SpeedAssignment::uniform;
  options.top_k = 2;
  options.seed = 5;
  const AttentionSpeed speed = measure_attention(options, 150, kSilent);
  const auto sets = random_sets(150, 4, 2, 5);
  std::int64_t attended = 0;
  for (std::size_t i = 0; i < sets.size(); ++i)
    for (std::size_t j = 0; j <= i; ++j) attended += i - j <= 8 || (sets[i] & sets[j]) != 0;
  EXPECT_EQ(speed.pairs.all, 150 * 151 / 2);
  EXPECT_EQ(speed.pairs.attended, attended);
  EXPECT_DOUBLE_EQ(speed.ideal_speedup(),
                   static_cast<double>(150 * 151 / 2) / static_cast<double>(attended));
  EXPECT_TRUE(speed.routing.seconds.empty());
  EXPECT_TRUE(std::isnan(speed.speedup_with_routing()));
  EXPECT_GT(speed.speedup(), 0);
  EXPECT_EQ(speed.flops_per_pair, 4 * 2 * 8);
}

TEST(AttentionSpeed, RoutedGroupsAreNearlyEqual) {
  const AttentionSpeed speed = measure_attention(tiny(), 2000, kSilent);
  EXPECT_GE(speed.largest_group, 0.25);
  EXPECT_LT(speed.largest_group, 0.35);
  EXPECT_EQ(speed.routing.seconds.size(), speed.focus.seconds.size());
}

TEST(AttentionSpeed, PhasesAreThoseOfTheFastestRunAndNoLonger) {
  AttentionSpeedOptions options = tiny();
  options.backward = options.soft = true;
  options.hard_gate = HardGate::keep;
  const AttentionSpeed speed = measure_attention(options, 300, kSilent);
  EXPECT_EQ(speed.flops_per_pair, 4 * 2 * 8 * 3.5);
  double sum = 0;
  std::vector<std::string> names;
  for (const Profile::Entry& phase : speed.focus.phases) {
    sum += phase.seconds;
    names.push_back(phase.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"sort", "local band", "merge", "grouped attention",
                                             "sparse_attention", "sparse_attention backward"}));
  EXPECT_GT(sum, 0);
  EXPECT_LE(sum, speed.focus.fastest());
  EXPECT_LE(speed.focus.fastest(), speed.focus.seconds.back());
  EXPECT_TRUE(speed.dense && speed.soft);
  EXPECT_GT(speed.dense->peak_bytes, 300u * 2 * 8 * sizeof(Real));  // the output at least
}

TEST(AttentionSpeed, LongerThanDenseUpToIsNotRun) {
  AttentionSpeedOptions options = tiny();
  options.soft = true;
  options.dense_up_to = 64;
  EXPECT_TRUE(measure_attention(options, 64, kSilent).dense);
  const AttentionSpeed longer = measure_attention(options, 65, kSilent);
  EXPECT_FALSE(longer.dense || longer.soft);
  EXPECT_TRUE(std::isnan(longer.speedup()));
}

}  // namespace
}  // namespace focus
