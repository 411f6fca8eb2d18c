#include "focus/adapters/baselines/random_groups.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

constexpr Index kLayer = 3;

Tensor run(const std::vector<Tensor>& x, const AttentionOptions& options,
           const RandomGroupsConfig& config, PairCounts* pairs = nullptr) {
  return random_groups_attention(x[0], x[1], x[2], options, config, kLayer, pairs).value();
}

TEST(RandomGroups, AttendsTheWindowTheFirstTokensAndTheOwnGroup) {
  for (const AwkwardCase& c : awkward_cases())
    for (const RandomGroupsConfig& config :
         {RandomGroupsConfig{.groups = 4, .local_window = 6, .sinks = 2},
          RandomGroupsConfig{.groups = 3, .local_window = 0, .sinks = 0},
          RandomGroupsConfig{.groups = 64, .local_window = 1, .sinks = 1}}) {
      const std::vector<int> groups = random_groups(config, kLayer, c.inputs.seq_len);
      expect_reads(
          c,
          [&](const auto& x, const auto& options, PairCounts* pairs) {
            return run(x, options, config, pairs);
          },
          [&](const NaiveQuery& q) {
            MaskRow row = local_keys(q, c.options, q.token - config.local_window, config.sinks);
            for (Index j = 0; j <= q.token; ++j)
              if (q.sees(j, c.options) &&
                  groups[static_cast<std::size_t>(j)] == groups[static_cast<std::size_t>(q.token)])
                row[static_cast<std::size_t>(j)] = true;
            return row;
          });
    }
}

TEST(RandomGroups, OneGroupIsDense) {
  for (const AwkwardCase& c : awkward_cases())
    expect_dense(c, [](const auto& x, const auto& options, PairCounts* pairs) {
      return run(x, options, {.groups = 1, .local_window = 2, .sinks = 1}, pairs);
    });
}

TEST(RandomGroups, AreEvenAndOtherOnesForAnotherSeedAndLayer) {
  const RandomGroupsConfig config{.groups = 5, .seed = 7};
  const std::vector<int> groups = random_groups(config, 0, 5000);
  for (int group = 0; group < 5; ++group)
    EXPECT_NEAR(std::ranges::count(groups, group), 1000, 120) << group;
  const auto same = [&](const std::vector<int>& other) {
    return std::transform_reduce(groups.begin(), groups.end(), other.begin(), 0, std::plus{},
                                 [](int a, int b) { return a == b ? 1 : 0; });
  };
  EXPECT_EQ(same(random_groups(config, 0, 5000)), 5000);
  EXPECT_NEAR(same(random_groups(config, 1, 5000)), 1000, 120);
  EXPECT_NEAR(same(random_groups({.groups = 5, .seed = 8}, 0, 5000)), 1000, 120);
  const std::vector<int> first(groups.begin(), groups.begin() + 100);
  EXPECT_EQ(random_groups(config, 0, 100), first);  // a hash of the position alone
}

TEST(RandomGroups, IsCausalToTheBitAndForAnyThreads) {
  const auto attend = [](const std::vector<Tensor>& x) {
    return run(x, {.scale = Real(0.35)}, {.groups = 3, .local_window = 5, .sinks = 2});
  };
  expect_causal(inputs_of({}), 41, attend);
  expect_same_bits_for_any_threads("random_groups",
                                   [&] { return std::vector{attend(inputs_of({}))}; });
}

TEST(RandomGroups, Gradient) {
  for (const Index sinks : {0, 1})
    expect_gradients(
        [&](const Variables& x) {
          return random_groups_attention(x[0], x[1], x[2], {.scale = Real(0.4)},
                                         {.groups = 2, .local_window = 2, .sinks = sinks}, kLayer);
        },
        inputs_of({.seq_len = 9, .heads = 4, .head_dim = 3}));
}

TEST(RandomGroups, RefusesSettingsThatMeanNothing) {
  EXPECT_THROW(RandomGroupsConfig{.groups = 0}.validate(), std::invalid_argument);
  EXPECT_THROW(RandomGroupsConfig{.groups = 65}.validate(), std::invalid_argument);
  EXPECT_THROW(RandomGroupsConfig{.sinks = -1}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace focus
