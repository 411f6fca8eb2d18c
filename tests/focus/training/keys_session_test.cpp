// Training with groups of keys: when they are placed, and what each objective lowers and trains.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "focus/training/session.h"
#include "tests/support/grouping_layers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_session.h"

namespace focus {
namespace {

std::int64_t fitted_on(Session& session) {
  return key_layers(*session.model().focus()).front().updates;
}

TEST(KeysSession, KeysArePlacedBeforeTheFirstStepAndOnce) {
  Session session = tiny_session(keys_run());
  EXPECT_EQ(fitted_on(session), 0);
  session.step();
  EXPECT_EQ(fitted_on(session), 64);
  // Not placed again: later steps train the same centroids.
  auto& centroids = key_layers(*session.model().focus()).front().centroids;
  std::ranges::fill(centroids.mutable_value().span(), Real(100));
  session.step();
  for (const Real x : centroids.value().span()) EXPECT_NEAR(static_cast<double>(x), 100, 5);
}

std::vector<double> needs_where(Index selected, HeadBudgets budgets = HeadBudgets::measured) {
  RunConfig config = keys_run();
  config.focus.summary.num_selected_groups = selected;
  config.focus.keys().head_budgets = budgets;
  Session session = tiny_session(config);
  session.step();
  std::vector<double> needs;
  for (Index layer = 0; layer < session.model().focus()->shape().num_layers; ++layer)
    if (const Tensor* of_layer = session.model().focus()->grouping().head_needs(layer))
      for (const Real need : of_layer->span()) needs.push_back(static_cast<double>(need));
  return needs;
}

TEST(KeysSession, HeadsNeedsAreTheirErrorsWhenKeysArePlaced) {
  const std::vector<double> one = needs_where(1), two = needs_where(2);
  ASSERT_EQ(one.size(), two.size());
  ASSERT_FALSE(one.empty());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_GT(one[i], 0);
  EXPECT_LT(std::accumulate(two.begin(), two.end(), 0.0),
            std::accumulate(one.begin(), one.end(), 0.0));
  for (const double need : needs_where(keys_run().focus.num_groups)) EXPECT_NEAR(need, 0, 1e-9);
  EXPECT_TRUE(needs_where(1, HeadBudgets::equal).empty());
  with_threads(1, [&] { EXPECT_EQ(needs_where(1), one); });
}

// What a summary token's own score has of the width is what serves the head best: any other share
// of it has a larger error on the same windows.
TEST(KeysSession, HeadsCountTheWidthAsItServesThem) {
  RunConfig config = keys_run();
  config.focus.summary.num_selected_groups = 0;
  Session session = tiny_session(config);
  session.step();
  FocusModel& focus = *session.model().focus();
  const AttentionSpec mode{.kind = AttentionKind::summary};
  std::set<Real> shares;
  for (Index layer = 0; layer < focus.shape().num_layers; ++layer) {
    const std::vector<Real> of_layer =
        focus.summary_of(mode.or_from(focus.config()), layer).summary_width;
    ASSERT_EQ(std::ssize(of_layer), focus.shape().heads);
    shares.insert(of_layer.begin(), of_layer.end());
  }
  EXPECT_GE(*shares.begin(), 0);
  EXPECT_LE(*shares.rbegin(), 1);
  EXPECT_GT(shares.size(), 1u);
  config.focus.keys().head_budgets = HeadBudgets::equal;
  Session equal = tiny_session(config);
  equal.step();
  EXPECT_EQ(equal.model().focus()->grouping().summary_width(0), nullptr);
}

TEST(KeysSession, HeadsSelectAsTheyNeed) {
  Session session = tiny_session(keys_run());
  session.step();
  FocusModel& focus = *session.model().focus();
  AttentionSpec mode{.kind = AttentionKind::summary};
  mode.summary.num_selected_groups = 2;
  const Index heads = focus.shape().heads;
  for (Index layer = 0; layer < focus.shape().num_layers; ++layer)
    for (Index head = 0; head < heads; ++head)
      focus.grouping().head_needs(layer)->data()[head] = head == 0 ? Real(9) : Real(1);
  std::vector<Index> wanted(heads, 1);
  wanted[0] = 3;
  EXPECT_EQ(focus.summary_of(mode, 1).selected_by_head, wanted);
  mode.summary.head_budgets = HeadBudgets::equal;
  EXPECT_TRUE(focus.summary_of(mode, 1).selected_by_head.empty());
  mode.summary.head_budgets = HeadBudgets::measured;
  mode.summary.selection_per = SelectionPer::key_head;
  EXPECT_TRUE(focus.summary_of(mode, 1).selected_by_head.empty());
}

TEST(KeysSession, KeysArePlacedBeforeTheFirstValidation) {
  Session validated = tiny_session(keys_run()), other = tiny_session(keys_run());
  std::vector<std::string> finished;
  const std::optional<double> loss = validated.validate([&](std::string_view work, double share) {
    if (share == 1) finished.emplace_back(work);
  });
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(finished, (std::vector<std::string>{"fit", "validate"}));
  EXPECT_EQ(fitted_on(validated), 64);
  validated.step();
  other.step();
  const auto a = parameters_of(validated), b = parameters_of(other);
  EXPECT_TRUE(changed(a, b).empty());
}

TEST(KeysSession, WithoutAStepToFitAtTheyStayRandom) {
  RunConfig config = keys_run();
  config.focus.keys().fit_step = std::nullopt;
  Session session = tiny_session(config);
  session.step();
  EXPECT_EQ(fitted_on(session), 0);
}

TEST(KeysSession, EachObjectiveLowersItsOwnLoss) {
  for (const Objective objective :
       {Objective::lm, Objective::logit_distillation, Objective::layer_distillation}) {
    RunConfig config = keys_run();
    config.focus.objective = objective;
    config.focus.keys().fit_step = std::nullopt;  // from random keys: k-means leaves little to gain
    config.data.context = 64;
    config.steps = 60;
    Session session = tiny_session(config);
    // 40 windows, two a step: an epoch is 20 steps, and each has the same text.
    std::vector<double> epochs(3);
    for (int i = 0; i < 60; ++i) epochs[i / 20] += session.step().result.loss / 20;
    EXPECT_GT(epochs.back(), 0);
    EXPECT_LT(epochs.back(), (objective == Objective::lm ? 0.9999 : 0.8) * epochs.front())
        << value_text(objective);
  }
}

TEST(KeysSession, KlIsZeroWhereAllGroupsAreRead) {
  RunConfig config = keys_run();
  config.focus.objective = Objective::logit_distillation;
  config.focus.summary.num_selected_groups = config.focus.num_groups;
  Session session = tiny_session(config);
  EXPECT_NEAR(session.step().result.loss, 0, 1e-5);
}

TEST(KeysSession, TheLastValidationSaysDensityAndKl) {
  RunConfig config = keys_run();
  config.steps = 1;
  const auto validated = [&](Objective objective, Index selected) {
    config.focus.objective = objective;
    config.focus.summary.num_selected_groups = selected;
    Session session = tiny_session(config);
    session.validate();
    EXPECT_FALSE(session.validated().kl.has_value()) << "only at the end";
    session.step();
    session.validate();
    return session.validated();
  };
  const int all = config.focus.num_groups;
  const Session::Validated sparse = validated(Objective::logit_distillation, 1);
  EXPECT_GT(sparse.pairs_attended.value(), 0.1);
  EXPECT_LT(sparse.pairs_attended.value(), 0.99);
  EXPECT_GT(sparse.kl.value(), 1e-6);
  const Session::Validated full = validated(Objective::layer_distillation, all);
  EXPECT_GE(full.pairs_attended.value(), 0.999);
  EXPECT_NEAR(full.kl.value(), 0, 1e-5);
  EXPECT_FALSE(validated(Objective::lm, 1).kl.has_value());
}

TEST(KeysSession, NoObjectiveTouchesTheBase) {
  for (const Objective objective :
       {Objective::lm, Objective::logit_distillation, Objective::layer_distillation}) {
    RunConfig config = keys_run();
    config.focus.objective = objective;
    Session session = tiny_session(config);
    session.validate();
    const auto before = parameters_of(session);
    session.step();
    const auto after = parameters_of(session);
    EXPECT_TRUE(changed(before, after, "model.").empty());
    // Centroids, bias and beta of three layers.
    EXPECT_EQ(changed(before, after, "focus.").size(), 9u) << value_text(objective);
    for_each_parameter(*session.model().decoder, [](const std::string& name, const Weight& p) {
      EXPECT_FALSE(p.requires_grad()) << name;
    });
  }
}

TEST(KeysSession, LayersReachNoParameterOfAnother) {
  // A layer's error alone: the gradient of the last layer's groups is the same whatever the first
  // layer's groups are.
  RunConfig config = keys_run();
  config.focus.objective = Objective::layer_distillation;
  const auto last_gradient = [&](Real shift) {
    Session session = tiny_session(config);
    session.validate();
    FocusModel& focus = *session.model().focus();
    for (Real& x : key_layers(focus).front().summary_bias.mutable_value().span()) x += shift;
    focus.begin_step({.step = 0, .first_phase = true});
    const Batch batch = tiny_batches(16, 2, 5).windows(0, 2);
    session.model().decoder->hidden_states(batch.ids, batch.batch);
    backward(focus.take_auxiliary_loss());
    return key_layers(focus).back().centroids.grad().clone();
  };
  EXPECT_TRUE(same_bits(last_gradient(0), last_gradient(2)));
}

TEST(KeysSession, StepsTakeTheirSelectedGroupsInTurn) {
  RunConfig config = keys_run(Method::lora);
  config.attention = {.name = "focus"};
  config.focus.objective = Objective::logit_distillation;
  config.focus.summary.train_num_selected_groups = {256, 0};
  Session session = tiny_session(config);
  const auto selected = [&](std::int64_t step) {
    return session.mode_at(step).summary.num_selected_groups;
  };
  EXPECT_EQ(selected(0), config.focus.num_groups);
  EXPECT_EQ(selected(1), 0);
  EXPECT_EQ(selected(2), config.focus.num_groups);
  // All groups and a LoRA of zeros: what is learned from.
  EXPECT_NEAR(session.step().result.loss, 0, 1e-6);
  EXPECT_GT(session.step().result.loss, 1e-5);
}

TEST(KeysSession, ANewModelAttendsDenseUntilItsKeysArePlaced) {
  RunConfig config = keys_run(Method::scratch);
  config.attention = {.name = "focus"};
  config.focus.keys().fit_step = 2;
  RunConfig dense_config = tiny_run(Method::scratch);
  Session session = tiny_session(config), dense = tiny_session(dense_config);
  EXPECT_EQ(session.mode_at(1).kind, AttentionKind::dense);
  EXPECT_EQ(session.mode_at(2).kind, AttentionKind::summary);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(session.step().result.loss, dense.step().result.loss) << "step " << i;
    EXPECT_EQ(fitted_on(session), 0);
  }
  EXPECT_TRUE(changed(parameters_of(dense), parameters_of(session), "model.").empty());
  session.step();
  dense.step();
  EXPECT_EQ(fitted_on(session), 64);
  EXPECT_FALSE(changed(parameters_of(dense), parameters_of(session), "model.").empty());
}

TEST(KeysSession, LoraTrainsBesideSummaryAttention) {
  RunConfig config = keys_run(Method::lora);
  config.attention = {.name = "focus"};
  Session session = tiny_session(config);
  session.validate();
  const auto before = parameters_of(session);
  session.step();
  session.step();
  const auto after = parameters_of(session);
  EXPECT_TRUE(changed(before, after, "model.").empty());
  EXPECT_EQ(changed(before, after, "focus.").size(), 9u);
  EXPECT_FALSE(changed(before, after, "lora.").empty());
}

TEST(KeysSession, SettingsThatDoNotFitAreRefusedByName) {
  const auto says = [](const std::function<void(RunConfig&)>& change, const std::string& part,
                       Method method = Method::retrofit) {
    RunConfig config = keys_run(method);
    change(config);
    EXPECT_THROW(config.validate_step(), std::invalid_argument) << part;
    const std::string said = error_of([&] { config.validate_step(); });
    EXPECT_NE(said.find(part), std::string::npos) << "no \"" << part << "\" in \"" << said << "\"";
  };
  EXPECT_NO_THROW(keys_run().validate_step());
  says([](RunConfig& c) { c.focus.summary.num_selected_groups = 5; },
       "focus.summary.num_selected_groups must be from 0 to");
  says(
      [](RunConfig& c) {
        c.focus.summary.train_num_selected_groups = {2, -1};
      },
      "focus.summary.train_num_selected_groups");
  says([](RunConfig& c) { c.focus.summary.block = 0; }, "focus.summary.block");
  says([](RunConfig& c) { c.focus.summary.sinks = 65; }, "focus.summary.sinks");
  says([](RunConfig& c) { c.focus.training = Training::soft; },
       "focus.grouping keys supports neither");
  says([](RunConfig& c) { c.focus.training = Training::hard; },
       "focus.grouping keys supports neither");
  says([](RunConfig& c) { c.focus.ablations.balance_loss = 1; },
       "focus.ablations apply to groups of tokens only");
  says([](RunConfig& c) { c.focus.ablations.recluster_every = 4; },
       "focus.ablations apply to groups of tokens only");
  says([](RunConfig& c) { c.focus.summary.selection = GroupSelection::own; },
       "focus.summary.selection own");
  says(
      [](RunConfig& c) {
        c.attention = {.name = "focus"};
        c.model.dropout = 0.1;
      },
      "model.dropout", Method::full);
}

}  // namespace
}  // namespace focus
