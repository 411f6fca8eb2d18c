#include "focus/training/session.h"

#include <gtest/gtest.h>

#include "focus/training/training.h"
#include "tests/support/grouping_layers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_session.h"

namespace focus {
namespace {

TEST(Session, RetrofitTrainsFocusAndNothingElse) {
  Session session = tiny_session(tiny_run());
  const auto before = parameters_of(session);
  while (!session.finished()) session.step();
  EXPECT_EQ(session.steps(), 6);
  const auto names = changed(before, parameters_of(session));
  EXPECT_EQ(names.size(), 2 * token_layers(*session.model().focus()).size());
  EXPECT_EQ(names, changed(before, parameters_of(session), "focus."));
}

TEST(Session, LoraTrainsLoraAndNothingElse) {
  Session session = tiny_session(tiny_run(Method::lora));
  const auto before = parameters_of(session);
  session.step();
  const auto after = parameters_of(session);
  EXPECT_EQ(changed(before, after), changed(before, after, "lora."));
}

TEST(Session, TwoPhasesTrainFocusThenAll) {
  Session session = tiny_session(tiny_run(Method::two_phase));
  const auto start = parameters_of(session);
  for (int i = 0; i < 3; ++i) session.step();
  EXPECT_TRUE(session.in_first_phase());
  EXPECT_FALSE(session.trains_base());
  const auto middle = parameters_of(session);
  EXPECT_EQ(changed(start, middle), changed(start, middle, "focus."));
  session.step();
  EXPECT_FALSE(session.in_first_phase());
  EXPECT_TRUE(session.trains_base());
  EXPECT_GT(changed(middle, parameters_of(session)).size(), 10u);
  EXPECT_GT(session.count_trainable(), 1000);
}

TEST(Session, ModesFollowTheConfig) {
  RunConfig config = tiny_run();
  Session soft = tiny_session(config);
  EXPECT_EQ(soft.mode_at(1).balance, Balance::sequence);
  EXPECT_EQ(soft.mode_at(2).balance, Balance::carried);
  EXPECT_EQ(soft.mode_at(2).kind, AttentionKind::soft);
  config.focus.training = Training::hard;
  EXPECT_EQ(tiny_session(config).mode_at(0).kind, AttentionKind::hard);
  config.method = Method::full;
  EXPECT_EQ(tiny_session(config).mode_at(0).kind, AttentionKind::dense);
}

TEST(Session, ReportsGroupsAndWhatAdaptersAddToTheLoss) {
  RunConfig config = tiny_run();
  config.data.gradient_accumulation_steps = 2;
  Session plain = tiny_session(config);
  const StepReport first = plain.step();
  EXPECT_EQ(first.step, 1);
  ASSERT_EQ(first.groups.size(), token_layers(*plain.model().focus()).size());
  EXPECT_EQ(first.groups[0].tokens, 2 * 2 * 16);
  EXPECT_FALSE(first.auxiliary_loss);
  config.focus.ablations.balance_loss = 0.5;
  Session balanced = tiny_session(config);
  const StepReport report = balanced.step();
  ASSERT_TRUE(report.auxiliary_loss);
  EXPECT_GT(*report.auxiliary_loss, 0);
  EXPECT_EQ(report.result.loss, first.result.loss);  // the text's alone
}

TEST(Training, TellsItsCallerAndWritesNothing) {
  RunConfig config = tiny_run();
  config.log_every = 2;
  config.eval_every = 3;
  Session session = tiny_session(config);
  std::vector<std::int64_t> steps, lines, validations;
  std::vector<double> shares;
  const TrainingResult result = run_training(
      session,
      {.on_step = [&](const Session&, const StepReport& r) { steps.push_back(r.step); },
       .on_line = [&](const Session&, const TrainingLine& l) { lines.push_back(l.report.step); },
       .on_validation = [&](std::int64_t step, double) { validations.push_back(step); },
       .on_work =
           [&](std::string_view work, double share) {
             EXPECT_EQ(work, "validate");
             shares.push_back(share);
           }});
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(lines, (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(validations, (std::vector<std::int64_t>{0, 3, 6}));
  EXPECT_EQ(std::ranges::count(shares, 1.0), 3) << "each validation comes to its end";
  EXPECT_TRUE(result.artifact.empty());
  ASSERT_TRUE(result.valid_loss && result.validations.start);
}

TEST(Training, StopsWhereItIsAskedAndGoesOnInItsFolder) {
  RunConfig config = tiny_run();
  const TempFolder temp;
  config.out = (temp.path() / "run").string();
  Session whole = tiny_session(config), first = tiny_session(config);
  run_training(whole);
  const TrainingResult stopped =
      run_training_in_folder(first, {}, {.should_stop = [&] { return first.steps() == 2; }});
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(stopped.step, 2);
  Session again = tiny_session(config);
  EXPECT_THROW(run_training_in_folder(again, {}), std::runtime_error);  // holds a run already
  const TrainingResult done = run_training_in_folder(again, {.resume = true});
  EXPECT_TRUE(done.finished);
  EXPECT_EQ(std::filesystem::path(done.artifact).filename(), "focus.h5");
  EXPECT_TRUE(std::filesystem::exists(done.artifact));
  EXPECT_TRUE(changed(parameters_of(whole), parameters_of(again)).empty());
}

TEST(Training, KeepsTheBestAndEndsWithoutGain) {
  RunConfig config = tiny_run();
  config.steps = 60;
  config.eval_every = 1;
  config.patience = 3;
  config.keep_best = true;
  config.optim.lr = 0.3;  // soon too much
  const TempFolder temp;
  config.out = (temp.path() / "whole").string();
  Session whole = tiny_session(config);
  std::vector<double> losses;
  const TrainingResult result = run_training_in_folder(
      whole, {}, {.on_validation = [&](std::int64_t, double loss) { losses.push_back(loss); }});
  EXPECT_TRUE(result.finished && result.ended_early);
  const auto best = std::ranges::min_element(losses);
  EXPECT_EQ(result.validations.best, *best);
  EXPECT_EQ(result.validations.best_step, best - losses.begin());
  EXPECT_EQ(result.step, result.validations.best_step + 3);
  EXPECT_EQ(StoreReader(result.best).int_attribute("/train", "step"), result.validations.best_step);

  // Stopped after every step, it keeps the same best and ends at the same one.
  config.out = (temp.path() / "pieces").string();
  TrainingResult last;
  for (std::int64_t stop = 1; !last.finished; ++stop) {
    Session piece = tiny_session(config);
    last = run_training_in_folder(piece, {.resume = true},
                                  {.should_stop = [&] { return piece.steps() == stop; }});
  }
  EXPECT_EQ(last.step, result.step);
  EXPECT_EQ(last.validations.best, result.validations.best);
  const auto centroids = [](const std::string& path) {
    return StoreReader(path).tensor("/focus/layer_000/centroids");
  };
  EXPECT_TRUE(same_bits(centroids(result.best), centroids(last.best)));
  EXPECT_TRUE(same_bits(centroids(result.artifact), centroids(last.artifact)));
  EXPECT_FALSE(same_bits(centroids(result.artifact), centroids(result.best)));
  // What has ended stays so, unless it may wait longer.
  Session again = tiny_session(config);
  EXPECT_EQ(run_training_in_folder(again, {.resume = true}).step, last.step);
  config.patience = 5;
  Session longer = tiny_session(config);
  EXPECT_GE(run_training_in_folder(longer, {.resume = true}).step, last.step + 2);
}

TEST(Session, LoraPlusLetsBLearnFaster) {
  RunConfig config = tiny_run();
  config.method = Method::lora;
  config.optim.lora_plus_ratio = 16;
  Session session = tiny_session(config);
  session.step();
  std::map<double, int> factors;
  for (const NamedParameter& p : session.optimiser().parameters()) {
    ++factors[p.lr_factor];
    // B is [out, rank], A [rank, in].
    const Index width = p.variable.shape()[1];
    EXPECT_EQ(p.lr_factor, width == config.lora.r ? 16 : 1) << p.name;
  }
  EXPECT_GE(factors[16], factors[1]);  // several for the parts of one linear
  EXPECT_GT(factors[1], 0);
}

TEST(Session, AFifthOfTheStepsTrainWithTheBalanceOfTheResult) {
  const auto steps_with = [](RunConfig config, std::optional<std::int64_t> steps) {
    config.focus.tokens().sequence_steps = steps;
    Session session = tiny_session(config);
    std::int64_t count = 0;
    for (std::int64_t step = 0; step < config.steps; ++step)
      count += session.mode_at(step).balance == Balance::sequence;
    return count;
  };
  RunConfig config = tiny_run();
  config.steps = 60;
  EXPECT_EQ(steps_with(config, std::nullopt), 48);
  EXPECT_EQ(steps_with(config, 7), 7);
  config = tiny_run(Method::two_phase);
  config.steps = 60;
  config.two_phase.phase1_steps = 30;
  EXPECT_EQ(steps_with(config, std::nullopt), 24);
}

TEST(Training, DryRunSaysWhatMemoryARunTakes) {
  const auto expect_near = [](RunConfig config) {
    SCOPED_TRACE(testing::Message()
                 << value_text(config.method) << " " << config.activation_checkpointing);
    config.data.context = 64;
    config.data.batch = 4;
    config.eval_windows = 1;
    // One thread: how much scratch of several threads lives at the same moment is a matter of
    // chance.
    with_threads(1, [&] {
      trim_pool();
      const std::size_t other = pool_stats().reserved;
      DryRun dry;
      {
        Session session = tiny_session(config);
        dry = dry_run(session);
      }
      trim_pool();
      ASSERT_EQ(pool_stats().reserved, other);
      Session session = tiny_session(config);
      run_training(session);
      const auto taken = static_cast<double>(pool_stats().reserved);
      const DryRun::Phase& said = dry.phases.back();
      EXPECT_NEAR(static_cast<double>(said.weight_bytes - said.mapped_bytes + said.gradient_bytes +
                                      said.optimiser_bytes + said.activation_bytes),
                  taken, taken / 10);
      EXPECT_EQ(said.mapped_bytes, 0);
    });
  };
  for (const bool checkpointing : {false, true})
    for (const Method method : {Method::retrofit, Method::full, Method::lora}) {
      RunConfig config = tiny_run(method);
      config.activation_checkpointing = checkpointing;
      expect_near(config);
      if (method != Method::retrofit) continue;
      config.focus.grouping.name = "keys";
      config.focus.training = Training::summary;
      expect_near(config);
    }
}

/// Three steps of a session: losses, and what it has trained.
std::vector<Tensor> three_steps(const RunConfig& config, const std::string& family) {
  Session session = tiny_session(config, family);
  std::vector<Tensor> results;
  for (int i = 0; i < 3; ++i) {
    const StepReport report = session.step();
    results.push_back(Tensor::full({1}, static_cast<Real>(report.result.loss)));
    results.push_back(Tensor::full({1}, static_cast<Real>(report.result.grad_norm)));
  }
  for (const NamedParameter& p : session.optimiser().parameters())
    results.push_back(p.variable.value().clone());
  return results;
}

TEST(Session, LayersThatAreComputedAgainGiveTheSameBits) {
  const auto expect_same = [](RunConfig config, const std::string& family) {
    const std::vector<Tensor> kept = three_steps(config, family);
    config.activation_checkpointing = true;
    expect_same_bits(three_steps(config, family), kept, family);
  };
  for (const std::string family : {"gpt2", "llama", "gpt_neox"}) {
    for (const Training training : {Training::soft, Training::hard}) {
      RunConfig config = tiny_run();
      config.focus.training = training;
      expect_same(config, family);
    }
    RunConfig keys = tiny_run();
    keys.focus.grouping.name = "keys";
    keys.focus.training = Training::summary;
    for (const Objective objective : {Objective::lm, Objective::logit_distillation}) {
      keys.focus.objective = objective;
      expect_same(keys, family);
    }
    RunConfig full = tiny_run(Method::full);
    full.model.dropout = 0.2;
    expect_same(full, family);
    RunConfig lora = tiny_run(Method::lora);
    lora.lora.dropout = 0.2;
    if (family == "llama") lora.lora.target_modules = {"q_proj", "down_proj"};
    if (family == "gpt_neox") lora.lora.target_modules = {"query_key_value"};
    expect_same(lora, family);
    lora.attention = {.name = "focus"};
    lora.focus.objective = Objective::logit_distillation;
    for (const Training training : {Training::soft, Training::hard}) {
      lora.focus.training = training;
      expect_same(lora, family);
    }
  }
}

TEST(Session, LayersThatAreComputedAgainKeepLess) {
  RunConfig config = tiny_run();
  config.data.context = 64;
  // One thread: how much scratch of several threads lives at the same moment is a matter of chance.
  const auto peak = [](const RunConfig& of) {
    return with_threads(1, [&] {
      Session session = tiny_session(of);
      session.step();
      const std::size_t before = pool_stats().live;
      reset_pool_peak();
      session.step();
      return pool_stats().peak - before;
    });
  };
  const std::size_t kept = peak(config);
  config.activation_checkpointing = true;
  EXPECT_LT(peak(config), kept * 9 / 10);
}

TEST(Session, WhatLayersNoteInTheirForwardPassIsNotComputedAgain) {
  RunConfig config = tiny_run();
  config.activation_checkpointing = true;
  config.focus.ablations.balance_loss = 0.1;
  EXPECT_THROW(tiny_session(config), std::invalid_argument);
}

}  // namespace
}  // namespace focus
