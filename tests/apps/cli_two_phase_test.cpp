#include "data/settings/config.h"
#include "data/tokens/tokenize.h"
#include "focus/method/focus_files.h"
#include "focus/training/training.h"
#include "tests/support/cli.h"
#include "tests/support/tiny_focus.h"

// method two_phase: centroids on the frozen base, then everything.
namespace focus {
namespace {

constexpr std::int64_t kSteps = 9, kFirst = 5;

/// What both phases share.
Words common(const std::string& out) {
  return cli().retrofit({"out=" + out, "focus.tokens.sequence_steps=3", "optim.weight_decay=0.1"});
}
Words two_phase(const std::string& out, const Words& more = {}) {
  return common(out) +
         Words{"method=two_phase", fmt::format("steps={}", kSteps),
               fmt::format("two_phase.phase1_steps={}", kFirst), "two_phase.lr=0.003",
               "two_phase.warmup_steps=2"} +
         more;
}
RunConfig config_of_run(const Words& command) {
  RunConfig config;
  read_config("", {command.begin() + 1, command.end()}, config);
  config.data.cache_dir = cli().fresh("cache");
  return config;
}

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
NamedTensors parameters_of(Decoder& decoder) {
  NamedTensors tensors;
  for_each_parameter(decoder, [&](const std::string& name, Variable& p) {
    tensors.emplace_back(name, p.value().clone());
  });
  return tensors;
}

TEST(CliTwoPhase, TheFirstPhaseEndsAsARetrofitOfItsSteps) {
  const std::string out = cli().fresh("run"), retrofit = cli().fresh("retrofit");
  cli().must_run(two_phase(out, {"--stop-at", fmt::format("{}", kFirst)}));
  cli().must_run(common(retrofit) + Words{fmt::format("steps={}", kFirst)});
  const std::string name = fmt::format("/checkpoints/step_{:06}.h5", kFirst);
  expect_same_store(out + name, retrofit + name);
  auto records = metrics_of(out), wanted = metrics_of(retrofit);
  wanted.pop_back();  // the validation at the retrofit's end
  for (auto& record : records) {
    if (record.contains("loss")) {
      EXPECT_EQ(record.at("phase"), 1) << record;
    }
    record.erase("phase");
  }
  EXPECT_EQ(records, wanted);
}

TEST(CliTwoPhase, TheSecondPhaseIsFullTrainingFromThatAdapter) {
  const std::string out = cli().fresh("run"), retrofit = cli().fresh("retrofit");
  cli().must_run(two_phase(out));
  cli().must_run(common(retrofit) + Words{fmt::format("steps={}", kFirst)});

  const RunConfig config = config_of_run(two_phase(out));
  LoadedModel model = load_model(config.base, "", Precision::float32, WeightUse::trainable);
  model.attach(
      read_focus(open_focus(fs::path(retrofit + "/focus.h5")), model.fingerprint(), "base"));
  FocusModel& focus = *model.focus();
  NamedParameters parameters;
  const auto add = [&](const std::string& name, Variable& p) {
    p.set_requires_grad(true);
    parameters.push_back({name, p});
  };
  for_each_parameter(*model.decoder, add);
  focus.visit_parameters(add);
  OptimConfig optim = config.optim;
  optim.lr = 0.003;
  optim.warmup_steps = 2;
  AdamW adamw(parameters, optim);
  const TokenFile tokens =
      tokenize_cached(std::vector<fs::path>{cli().train_text()}, *model.tokenizer,
                      {.ends = model.text_ends(), .cache_dir = config.data.cache_dir});
  Batches batches(TokenView(tokens), {.batch = config.data.batch,
                                      .context = config.data.context,
                                      .seed = static_cast<std::uint64_t>(config.seed)});
  for (std::int64_t step = 0; step < kFirst; ++step) batches.next();
  std::vector<double> losses;
  focus.mode = {.kind = AttentionKind::soft, .balance = Balance::carried};
  for (std::int64_t step = 0; step < kSteps - kFirst; ++step)
    losses.push_back(training_step(adamw, {optim, 0, kSteps - kFirst}, step, 1, [&](int) {
                       const Batch batch = batches.next();
                       Variable loss = model.decoder->loss(batch.ids, batch.batch);
                       carry_potentials(focus);
                       return loss;
                     }).loss);

  std::vector<double> logged, rates;
  for (const auto& record : metrics_of(out))
    if (record.value("phase", 0) == 2) {
      logged.push_back(record.at("loss"));
      rates.push_back(record.at("lr"));
    }
  EXPECT_EQ(logged, losses);
  EXPECT_EQ(rates.front(), 0.0015) << "a warm-up of its own";
  EXPECT_LT(rates.back(), 0.001) << "and a decay";
  LoadedModel trained = load_model(out + "/model.h5", "", Precision::float32, WeightUse::trainable);
  std::vector<Tensor> wanted;
  const auto note = [&](const std::string&, Variable& p) { wanted.push_back(p.value()); };
  std::size_t i = 0;
  const auto expect_same = [&](const std::string& name, Variable& p) {
    EXPECT_TRUE(same_bits(p.value(), wanted.at(i++))) << name;
  };
  for_each_parameter(*model.decoder, note);
  focus.visit_parameters(note);
  for_each_parameter(*trained.decoder, expect_same);
  ASSERT_TRUE(trained.focus());
  trained.focus()->visit_parameters(expect_same);
  EXPECT_EQ(i, wanted.size());
}

TEST(CliTwoPhase, TheBaseKeepsItsBitsInTheFirstPhaseAndChangesInTheSecond) {
  RunConfig config = config_of_run(two_phase(cli().fresh("run")));
  NamedTensors before;
  {
    Session session = open_session(config);
    before = parameters_of(*session.model().decoder);
    TrainingCallbacks callbacks;
    callbacks.should_stop = [&] { return session.steps() == kFirst; };
    EXPECT_FALSE(run_training_in_folder(session, {}, callbacks).finished);
    const NamedTensors after = parameters_of(*session.model().decoder);
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(same_bits(after[i].second, before[i].second)) << before[i].first;
  }
  Session session = open_session(config);
  EXPECT_TRUE(run_training_in_folder(session, {.resume = true}).finished);
  const NamedTensors after = parameters_of(*session.model().decoder);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_FALSE(same_bits(after[i].second, before[i].second)) << before[i].first;
}

TEST(CliTwoPhase, WritesOneModelThatKnowsItsFocus) {
  const std::string out = cli().fresh("run");
  cli().must_run(two_phase(out));
  EXPECT_TRUE(fs::exists(out + "/model.h5"));
  EXPECT_FALSE(fs::exists(out + "/focus.h5"));
  const auto figures =
      cli().figures({"eval", out + "/model.h5", "--text", cli().valid_text(), "--context", "64"});
  bool soft = false;
  for (const auto& row : figures.at("rows")) soft = soft || row.at("attention") == "soft";
  EXPECT_TRUE(soft);
  cli().must_run({"leak-test", out + "/model.h5"});
  const auto resumed = cli().figures(two_phase(out, {"--resume"}));
  EXPECT_EQ(resumed.at("finished"), true);
}

TEST(CliTwoPhase, ACheckpointOfTheFirstPhaseIsRefusedOnAnotherBase) {
  const std::string base = cli().fresh("base.h5"), out = cli().fresh("run");
  fs::copy_file(cli().base(), base);
  cli().must_run(two_phase(out, {"base=" + base, "--stop-at", fmt::format("{}", kFirst)}));
  const auto before = snapshot(out);
  fs::copy_file(cli().other_base(), base, fs::copy_options::overwrite_existing);
  expect_refused(two_phase(out, {"base=" + base, "--resume"}), {"fingerprint", base});
  EXPECT_EQ(snapshot(out), before);
}

TEST(CliTwoPhase, ResumeWithAnotherBoundaryIsRefused) {
  const std::string out = cli().fresh("run");
  cli().must_run(two_phase(out, {"--stop-at", "3"}));
  expect_refused(two_phase(out, {"two_phase.phase1_steps=4", "--resume"}),
                 {"two_phase.phase1_steps: 5 before, 4 now", "--overwrite"});
}

TEST(CliTwoPhase, DryRunSaysBothPhases) {
  const std::string out = cli().fresh("dry");
  const ProcessResult result = cli().must_run(two_phase(out, {"--dry-run"}));
  EXPECT_TRUE(contains(result.out, "phase 1, steps 1 to 5")) << result.out;
  EXPECT_TRUE(contains(result.out, "phase 2, steps 6 to 9")) << result.out;
  const auto figures = cli().figures(two_phase(out, {"--dry-run"}));
  EXPECT_FALSE(fs::exists(out));
  const std::int64_t base = cli().figures({"info", cli().base()}).at("parameters");
  const auto& phases = figures.at("phases");
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].at("trainable"), 560);
  EXPECT_EQ(phases[0].at("frozen"), base);
  EXPECT_EQ(phases[1].at("trainable"), base + 560);
  EXPECT_EQ(phases[1].at("frozen"), 0);
  EXPECT_EQ(figures.at("trainable"), base + 560);
  EXPECT_GT(phases[1].at("optimiser_bytes"), phases[0].at("optimiser_bytes"));
}

TEST(CliTwoPhase, WhatDoesNotFitIsRefused) {
  const std::string out = cli().fresh("run");
  expect_refused(two_phase(out, {"two_phase.phase1_steps=9"}), {"two_phase.phase1_steps is 9"});
  expect_refused(two_phase(out, {"two_phase.lr=0"}), {"two_phase.lr"});
  expect_refused(two_phase(out, {"precision=q8"}), {"q8", "two_phase"});
  expect_refused(two_phase(out, {"attention=window"}), {"window", "two_phase"});
  expect_refused({"speed", "--step", "method=two_phase"}, {"two_phase", "retrofit"});
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace focus
