#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "focus/method/attention/group_plans.h"
#include "tests/support/random.h"

namespace focus {
namespace {

using Pairs = std::map<std::pair<Index, Index>, int>;  // how often a query meets a key

/// What the tiles of a plan let their queries see.
Pairs pairs_of(const AttentionPlan& plan) {
  Pairs pairs;
  for (const auto& tile : plan.query_tiles) {
    EXPECT_LE(tile.end - tile.begin, AttentionPlan::kQueries);
    for (Index s = tile.first_segment; s < tile.end_segment; ++s) {
      const auto [first, last] = plan.segments[s];
      for (Index t = first; t < last; ++t) {
        const auto [begin, end] = plan.key_tiles[t];
        EXPECT_LE(end - begin, AttentionPlan::kKeys);
        for (Index q = tile.begin; q < tile.end; ++q)
          for (Index key = begin; key < end; ++key) {
            const Index i = plan.token(q), j = plan.token(key);
            if (j > plan.seen_after(i) && j <= plan.seen_last(i)) ++pairs[{i, j}];
          }
      }
    }
  }
  return pairs;
}

struct PlanCase {
  SummarySettings settings;
  Index batch = 2, seq_len = 230, groups = 4, stride = 3;
  bool skewed = false;
};

void expect_far_pairs_of_choice(const PlanCase& c) {
  const Index tokens = c.batch * c.seq_len;
  Rng rng(7);
  std::vector<std::uint8_t> group_ids(tokens * c.stride),
      selection(static_cast<std::size_t>(tokens));
  const auto any = [&](Index below) {
    return static_cast<std::uint8_t>(rng.below(static_cast<std::uint64_t>(below)));
  };
  // A number at or above `groups` selects nothing.
  for (auto& x : group_ids) x = c.skewed && any(8) != 0 ? std::uint8_t{0} : any(c.groups);
  for (auto& x : selection) x = c.skewed && any(8) != 0 ? std::uint8_t{0} : any(c.groups + 2);
  const GroupIdView of_keys{group_ids.data() + c.stride - 1, c.stride},
      of_queries{selection.data(), 1};
  const AttentionPlan plan =
      selected_groups_plan(of_keys, {&of_queries, 1}, c.groups, c.batch, c.seq_len, c.settings, 0);
  Pairs expected;
  for (Index b = 0; b < c.batch; ++b)
    for (Index i = 0; i < c.seq_len; ++i)
      for (Index j = std::max(c.settings.distant_begin(i), Index{0}); j < c.settings.distant_end(i);
           ++j) {
        const Index query = b * c.seq_len + i, key = b * c.seq_len + j;
        if (of_queries[query] < c.groups && of_queries[query] == of_keys[key])
          expected[{query, key}] = 1;
      }
  const Pairs pairs = pairs_of(plan);
  EXPECT_EQ(pairs.size(), expected.size());
  EXPECT_TRUE(pairs == expected) << "window " << c.settings.local_window << " block "
                                 << c.settings.block << " sinks " << c.settings.sinks << " sliding "
                                 << c.settings.sliding_window;
  // Every query is in at most one tile, so that a plan can be merged onto what is there.
  std::set<Index> queries;
  for (const auto& tile : plan.query_tiles)
    for (Index row = tile.begin; row < tile.end; ++row) {
      EXPECT_TRUE(queries.insert(plan.token(row)).second) << "token " << plan.token(row);
      if (row > tile.begin) {
        EXPECT_LT(plan.token(row - 1), plan.token(row));
      }
    }
}

TEST(ChosenPlan, HoldsTheFarPairsOfTheChosenClassOnce) {
  for (const Index sliding_window : {0, 9, 70, 200})
    for (const Index block : {1, 3, 32, 100})
      for (const Index window : {0, 20, 120})
        for (const Index sinks : {0, 1, 60})
          expect_far_pairs_of_choice({.settings = {.local_window = window,
                                                   .block = block,
                                                   .sinks = sinks,
                                                   .sliding_window = sliding_window}});
}

TEST(ChosenPlan, HoldsThemOverSeveralTilesOfAClass) {
  for (const Index sliding_window : {0, 210})
    for (const Index groups : {1, 5, 64, 255})
      for (const bool skewed : {false, true})
        expect_far_pairs_of_choice({.settings = {.local_window = 32,
                                                 .block = 16,
                                                 .sinks = 1,
                                                 .sliding_window = sliding_window},
                                    .seq_len = 600,
                                    .groups = groups,
                                    .stride = 1,
                                    .skewed = skewed});
}

TEST(ChosenPlan, OfSeveralChoicesHoldsEachOnceInRunsOfQueries) {
  constexpr Index kGroups = 5, kSeqLen = 500, kBatch = 2, kRun = 128;
  std::vector<std::uint8_t> group_ids(kBatch * kSeqLen), first(group_ids.size()),
      second(group_ids.size());
  Rng rng(3);
  for (std::size_t i = 0; i < group_ids.size(); ++i) {
    group_ids[i] = static_cast<std::uint8_t>(rng.below(kGroups));
    first[i] = static_cast<std::uint8_t>(rng.below(kGroups));
    second[i] = static_cast<std::uint8_t>((first[i] + 1 + rng.below(kGroups - 1)) % kGroups);
  }
  const SummarySettings settings{
      .local_window = 20, .block = 16, .sinks = 1, .sliding_window = 300};
  const GroupIdView of_keys{group_ids.data(), 1},
      selections[] = {{first.data(), 1}, {second.data(), 1}};
  const AttentionPlan plan =
      selected_groups_plan(of_keys, selections, kGroups, kBatch, kSeqLen, settings, kRun);
  Pairs expected;
  for (const GroupIdView& selection : selections)
    for (Index b = 0; b < kBatch; ++b)
      for (Index i = 0; i < kSeqLen; ++i)
        for (Index j = settings.distant_begin(i); j < settings.distant_end(i); ++j)
          if (selection[b * kSeqLen + i] == of_keys[b * kSeqLen + j])
            expected[{b * kSeqLen + i, b * kSeqLen + j}] = 1;
  EXPECT_TRUE(pairs_of(plan) == expected);
  // Tiles that hold the same token are of one run.
  ASSERT_GE(plan.runs.size(), 3u);
  EXPECT_EQ(plan.runs.front(), 0);
  EXPECT_EQ(plan.runs.back(), static_cast<Index>(plan.query_tiles.size()));
  std::map<Index, std::size_t> run_of;
  for (std::size_t run = 0; run + 1 < plan.runs.size(); ++run)
    for (Index tile = plan.runs[run]; tile < plan.runs[run + 1]; ++tile) {
      const auto& rows = plan.query_tiles[tile];
      for (Index row = rows.begin; row < rows.end; ++row)
        EXPECT_EQ(run_of.try_emplace(plan.token(row), run).first->second, run);
    }
}

TEST(ChosenPlan, IsEmptyWithoutAFarZone) {
  const std::vector<std::uint8_t> none(64, 0);
  const GroupIdView view{none.data(), 1};
  for (const Index seq_len : {1, 20, 32})
    EXPECT_TRUE(
        selected_groups_plan(view, {&view, 1}, 1, 2, seq_len, {.local_window = 16, .block = 16}, 0)
            .query_tiles.empty());
  EXPECT_FALSE(
      selected_groups_plan(view, {&view, 1}, 1, 1, 64, {.local_window = 16, .block = 16}, 0)
          .query_tiles.empty());
}

TEST(ChosenPlan, PartsHaveNoRowInCommon) {
  // What the backward pass runs side by side.
  std::vector<std::uint8_t> group_ids(800), selection(800);
  Rng rng(5);
  for (auto& c : group_ids) c = static_cast<std::uint8_t>(rng.below(3));
  for (auto& c : selection) c = static_cast<std::uint8_t>(rng.below(3));
  const GroupIdView of_queries{selection.data(), 1};
  const AttentionPlan plan =
      selected_groups_plan({group_ids.data(), 1}, {&of_queries, 1}, 3, 2, 400, {}, 0);
  std::set<Index> keys_seen, tiles_seen;
  for (const auto& part : plan.independent_parts()) {
    std::set<Index> keys;
    for (const Index number : part) {
      EXPECT_TRUE(tiles_seen.insert(number).second);
      const auto& tile = plan.query_tiles[number];
      for (Index s = tile.first_segment; s < tile.end_segment; ++s)
        for (Index t = plan.segments[s].begin; t < plan.segments[s].end; ++t) keys.insert(t);
    }
    for (const Index key : keys) EXPECT_TRUE(keys_seen.insert(key).second) << "key tile " << key;
  }
  EXPECT_EQ(tiles_seen.size(), plan.query_tiles.size());
  EXPECT_GE(plan.independent_parts().size(), 6u);
}

}  // namespace
}  // namespace focus
