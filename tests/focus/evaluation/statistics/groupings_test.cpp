#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "focus/evaluation/statistics/groups_report.h"
#include "focus/evaluation/statistics/statistics.h"
#include "tests/support/compare.h"
#include "tests/support/grouping_layers.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

constexpr Index kContext = 24;

FocusConfig keys_config() {
  FocusConfig config = tiny_keys();
  config.summary.num_selected_groups = 1;
  config.summary.block = 4;
  return config;
}

/// A tiny decoder with a Focus, and two documents for it.
struct TinyText {
  explicit TinyText(const FocusConfig& config, std::uint64_t seed = 4)
      : decoder(tiny_decoder("llama")),
        rng(seed),
        focus(config, FocusShape::of(decoder.config()), rng),
        ids(random_ids(61, 37, 2)) {
    focus.attach(decoder);
    text = cut_windows(std::vector<EvalText>{{"a", {ids.begin(), ids.begin() + 30}},
                                             {"b", {ids.begin() + 30, ids.end()}}},
                       kContext);
  }
  Decoder decoder;
  Rng rng;
  FocusModel focus;
  std::vector<std::int32_t> ids;
  TextWindows text;
};

TEST(Groupings, WindowsDoNotCrossDocuments) {
  const TinyText tiny(tiny_focus());
  EXPECT_EQ(tiny.text.windows, (std::vector<Index>{0, 24, 30, 54, 61}));
  EXPECT_EQ(tiny.text.names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(tiny.text.ids, tiny.ids);
  EXPECT_EQ(tiny.text.window(3).size(), 7u);
  EXPECT_EQ(tiny.text.window(3).front(), tiny.ids[54]);
}

TEST(Groupings, ATokenBeforeEachWindowIsOneOfIt) {
  const EvalText text{.name = "a", .ids = {1, 2, 3, 4, 5}, .window_start = 9};
  const TextWindows cut = cut_windows(std::vector{text}, 3);
  EXPECT_EQ(cut.ids, (std::vector<std::int32_t>{9, 1, 2, 9, 3, 4, 9, 5}));
  EXPECT_EQ(cut.windows, (std::vector<Index>{0, 3, 6, 8}));
  EXPECT_THROW(cut_windows(std::vector{text}, 1), std::invalid_argument);
}

TEST(Groupings, OfHiddenStatesAreThoseThatAttentionHas) {
  for (const Balance balance : {Balance::carried, Balance::sequence, Balance::none}) {
    TinyText tiny(tiny_focus(balance));
    const auto groupings = collect_groupings(tiny.decoder, tiny.focus, tiny.text);
    ASSERT_EQ(groupings.size(), 3u);
    const NoGrad guard;
    tiny.decoder.hidden_states(tiny.text.window(2), 1);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      const Routing& routing = token_grouping_of(tiny.focus).last_routings()[layer];
      const std::vector<std::uint64_t> sets = membership(routing, 1);
      ASSERT_EQ(sets.size(), static_cast<std::size_t>(kContext));
      for (std::size_t t = 0; t < sets.size(); ++t) {
        const auto c = groupings[layer].group_of_token[30 + t];
        EXPECT_EQ(c, std::countr_zero(sets[t]));
        EXPECT_EQ(
            groupings[layer].confidence[30 + t],
            static_cast<float>(routing.assignments.value()[static_cast<Index>(t) * 4 + Index{c}]));
      }
      EXPECT_GT(groupings[layer].entropy, 0);
      EXPECT_LT(groupings[layer].entropy, std::log(4.0));
    }
  }
}

TEST(Groupings, OfKeysAreThoseThatAttentionHas) {
  TinyText tiny(keys_config());
  const auto groupings = collect_groupings(tiny.decoder, tiny.focus, tiny.text);
  ASSERT_EQ(groupings.size(), 6u);  // three layers of two key heads
  const NoGrad guard;
  tiny.decoder.hidden_states(tiny.text.window(2), 1);
  for (std::size_t i = 0; i < groupings.size(); ++i) {
    EXPECT_EQ(groupings[i].layer, static_cast<Index>(i / 2));
    EXPECT_EQ(groupings[i].head, static_cast<Index>(i % 2));
    const GroupIds& groups = tiny.focus.last_group_ids()[i / 2];
    for (std::size_t t = 0; t < 24; ++t) {
      EXPECT_EQ(groupings[i].group_of_token[30 + t], groups.ids[2 * t + i % 2]);
      EXPECT_GE(groupings[i].confidence[30 + t], 0.25F);
    }
  }
}

TEST(Groupings, LookingChangesNothing) {
  TinyText tiny(tiny_focus());
  const NoGrad guard;
  const Tensor before = tiny.decoder.hidden_states(tiny.text.window(0), 1).value();
  collect_groupings(tiny.decoder, tiny.focus, tiny.text);
  EXPECT_TRUE(same_bits(tiny.decoder.hidden_states(tiny.text.window(0), 1).value(), before));
}

TEST(Groupings, OfFewerLayersAreRefused) {
  TinyText tiny(tiny_focus());
  FocusModel other(tiny_focus(), tiny.decoder.config().hidden_size, 2, tiny.rng);
  EXPECT_THROW(collect_groupings(tiny.decoder, other, tiny.text), std::invalid_argument);
}

TEST(Groupings, AreTheSameForAnyNumberOfThreads) {
  std::vector<std::vector<GroupAssignments>> runs;
  for (const int threads : {1, 3})
    for (const FocusConfig& config : {tiny_focus(), keys_config()}) {
      TinyText tiny(config);
      runs.push_back(with_threads(
          threads, [&] { return collect_groupings(tiny.decoder, tiny.focus, tiny.text); }));
    }
  for (std::size_t space = 0; space < 2; ++space)
    for (std::size_t i = 0; i < runs[space].size(); ++i) {
      EXPECT_EQ(runs[space][i].group_of_token, runs[space + 2][i].group_of_token);
      EXPECT_EQ(runs[space][i].confidence, runs[space + 2][i].confidence);
      EXPECT_EQ(runs[space][i].entropy, runs[space + 2][i].entropy);
    }
}

}  // namespace
}  // namespace focus
