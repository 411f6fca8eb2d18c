#include "focus/training/choose_groups.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "focus/models/model_files.h"
#include "tests/support/byte_model.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

TEST(LeastWhere, FindsWhatHoldsFirstWithFewCalls) {
  for (const Index most : {1, 2, 3, 4, 16, 128, 256})
    for (const Index first : {Index{0}, Index{1}, most / 12, most})
      for (Index truth = 0; truth <= most; ++truth) {
        int calls = 0;
        const Index found = least_where(first, most, [&](Index n) {
          EXPECT_GE(n, 0);
          EXPECT_LT(n, most) << "is taken to hold";
          ++calls;
          return n >= truth;
        });
        EXPECT_GE(found, truth);
        EXPECT_LE(found - truth, std::max<Index>(1, found / 16) - 1) << truth << " of " << most;
        EXPECT_LE(calls, 14) << truth << " of " << most << " from " << first;
        if (most == 128 && first == 10 && truth >= 5 && truth <= 20) {
          EXPECT_LE(calls, 6) << truth;
        }
      }
}

class ChooseGroups : public testing::Test {
 protected:
  ChooseGroups() {
    for (int i = 0; text_.size() < 3000; ++i)
      text_ += fmt::format("It was the {} of times, it was the {} of days. ", i * i % 89, i % 7);
    settings_.focus.num_groups = 16;
    settings_.focus.local_window = settings_.focus.summary.block = 4;
    settings_.focus.keys().fit_tokens = 512;
  }
  ChosenGroups choose(const GroupsGoal& goal) {
    return choose_groups(model_, batches_(), settings_, goal,
                         [&](double share) { EXPECT_LE(share, 1); });
  }
  Batches batches_() { return fit_windows(model_, {.documents = {text_}}, "", 128); }

  LoadedModel model_ = byte_model();
  FitSettings settings_;
  std::string text_;
};

TEST_F(ChooseGroups, ADensityGetsTheNearestOfEachKAndTheLeastKl) {
  const ChosenGroups chosen = choose({.density = 0.6});
  const TriedGroups& best = chosen.tried.at(chosen.best);
  EXPECT_TRUE(chosen.reached);
  EXPECT_NEAR(best.row.pairs_attended, 0.6, 0.06);
  for (const TriedGroups& tried : chosen.tried) {
    EXPECT_TRUE(tried.num_groups == 16 || tried.num_groups == 8);
    if (tried.num_groups == best.num_groups) {
      EXPECT_GE(std::abs(tried.row.pairs_attended - 0.6), std::abs(best.row.pairs_attended - 0.6));
    }
  }
  // The model has what was chosen, and it comes to what the row says.
  const FocusConfig& config = model_.focus()->config();
  EXPECT_EQ(config.num_groups, best.num_groups);
  EXPECT_EQ(config.summary.num_selected_groups, best.num_selected_groups);
  EXPECT_EQ(chosen.settings.focus.num_groups, best.num_groups);
  EXPECT_EQ(fitted_context(model_), 128);
  const Index held = batches_().num_windows() / 4;
  EXPECT_EQ(chosen.windows, held);
  EXPECT_EQ(best.row.tokens_scored, held * 127);
  const auto dense = [](const Row& row) { return row.nats_per_token - *row.nats_against_dense; };
  EXPECT_NEAR(dense(chosen.tried[0].row), dense(best.row), 1e-9);  // of the same windows
}

TEST_F(ChooseGroups, ATargetGetsTheLeastDensityThatReachesIt) {
  const ChosenGroups all = choose({.density = 0.5, .fewer_too = false});
  double worst = 0;
  for (const TriedGroups& tried : all.tried) worst = std::max(worst, std::abs(tried.loss()));
  ASSERT_GT(worst, 0);
  const ChosenGroups chosen = choose({.target = 2 * worst, .fewer_too = false});
  const TriedGroups& best = chosen.tried.at(chosen.best);
  EXPECT_TRUE(chosen.reached);
  EXPECT_LE(best.loss(), 2 * worst);
  EXPECT_GT(best.loss_error(), 0);
  for (const TriedGroups& tried : chosen.tried)
    if (tried.loss() <= 2 * worst) {
      EXPECT_LE(best.row.pairs_attended, tried.row.pairs_attended);
    }
}

TEST_F(ChooseGroups, WindowsBlocksAndSinksAreTriedWhereTheGoalLetsThem) {
  const auto shape = [](const TriedGroups& of) {
    return std::tuple(of.local_window, of.block, of.sinks);
  };
  const ChosenGroups fixed = choose({.density = 0.6, .fewer_too = false});
  for (const TriedGroups& tried : fixed.tried) EXPECT_EQ(shape(tried), std::tuple(4, 4, 1));
  const ChosenGroups sinks = choose({.density = 0.6, .fewer_too = false, .sinks = true});
  std::set<Index> numbers;
  for (const TriedGroups& tried : sinks.tried) {
    EXPECT_EQ(std::pair(tried.local_window, tried.block), std::pair(Index{4}, Index{4}));
    numbers.insert(tried.sinks);
  }
  EXPECT_TRUE(numbers.contains(1) && numbers.contains(2));
  const ChosenGroups all = choose(
      {.density = 0.6, .fewer_too = false, .local_window = true, .block = true, .sinks = true});
  std::set<std::tuple<Index, Index, Index>> shapes;
  for (const TriedGroups& tried : all.tried) shapes.insert(shape(tried));
  EXPECT_GE(shapes.size(), 5u);
  const TriedGroups &best = all.tried.at(all.best), &before = fixed.tried.at(fixed.best);
  EXPECT_TRUE(all.reached);
  // More pairs are not why it is better.
  EXPECT_LT(*best.row.kl, *before.row.kl);
  EXPECT_NEAR(best.row.pairs_attended, 0.6, 0.06);
  const FocusConfig& config = model_.focus()->config();
  EXPECT_EQ(std::tuple(config.local_window, config.summary.block, config.summary.sinks),
            shape(best));
  EXPECT_EQ(config.summary.num_selected_groups, best.num_selected_groups);
}

TEST_F(ChooseGroups, WhatIsOutOfReachIsSaidAndTheNearestTaken) {
  const ChosenGroups chosen = choose({.density = 0.01, .fewer_too = false});
  EXPECT_FALSE(chosen.reached);
  EXPECT_EQ(chosen.tried.at(chosen.best).num_selected_groups, 0);
  text_ = std::string(200, 'a');
  EXPECT_NE(error_of([&] { choose({.target = 0.5}); }).find("fills 1 window of 128 tokens"),
            std::string::npos);
  EXPECT_NE(error_of([&] { choose({}); }).find("a target or a density"), std::string::npos);
}

TEST_F(ChooseGroups, WindowsOfDocumentsAreMeasuredDocumentByDocument) {
  const std::vector<Index> offsets = {0, 30, 60, 61, 90, 120, 150, 180};
  auto ids = random_ids(180, 256, 3);
  const Batches batches(TokenView(TokenFile::from_tokens(ids, offsets, 256)),
                        {.context = 64, .shuffle = false, .packing = Packing::documents});
  settings_.focus.num_groups = 4;
  settings_.focus.keys().fit_tokens = 64;
  const ChosenGroups chosen = choose_groups(model_, batches, settings_, {.density = 0.9});
  EXPECT_EQ(chosen.windows, 1);
  const std::int64_t scored = chosen.tried.at(0).row.tokens_scored;
  const Batch held = batches.windows(batches.num_windows() / 2, 1);
  EXPECT_EQ(scored, count_targets(held));
  EXPECT_LT(scored, std::ssize(held.ids) - 1);
}

TEST(FitFocus, DoesNotReadWhatIsHeldBack) {
  std::vector<std::vector<Tensor>> fitted;
  for (const bool changed : {false, true}) {
    LoadedModel model = byte_model();
    auto ids = random_ids(8 * 32, 256, 3);
    if (changed)
      for (Index i = 2 * 32; i < 3 * 32; ++i) ids[i] = 7;
    const Batches batches(TokenView(TokenFile::from_tokens(ids, {}, 256)),
                          {.context = 32, .shuffle = false, .packing = Packing::wrapped});
    for (const std::vector<Index>& held : {std::vector<Index>{2}, {}}) {
      FocusModel& focus = attach_groups(model, {});
      fit_focus(*model.decoder, focus, batches, 1 << 20, 1, {}, held);
      EXPECT_EQ(focus.grouping().updates(0), (8 - std::ssize(held)) * 32);
      auto& values = fitted.emplace_back();
      for (Index i = 0; i < focus.shape().num_layers; ++i)
        focus.grouping().visit_tensors(
            i, [&](std::string_view, Tensor& value) { values.push_back(value.clone()); });
    }
  }
  const auto same = [&](std::size_t a, std::size_t b) {
    return std::ranges::equal(fitted[a], fitted[b], same_bits);
  };
  EXPECT_TRUE(same(0, 2));
  EXPECT_FALSE(same(1, 3));
}

TEST(FitSettings, SuitTheContext) {
  const auto suited = [](Index context) {
    FitSettings settings;
    settings.suit(context);
    const SummarySettings& summary = settings.focus.summary;
    return std::vector<Index>{settings.focus.num_groups, summary.num_selected_groups,
                              settings.focus.local_window, summary.block, summary.sinks};
  };
  EXPECT_EQ(suited(512), (std::vector<Index>{32, 2, 32, 32, 1}));
  EXPECT_EQ(suited(1024), (std::vector<Index>{64, 5, 16, 16, 4}));
  EXPECT_EQ(suited(2048), (std::vector<Index>{128, 11, 16, 16, 4}));
  EXPECT_EQ(suited(8192), (std::vector<Index>{256, 21, 16, 16, 4}));
}

}  // namespace
}  // namespace focus
