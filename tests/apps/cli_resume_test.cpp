#include "tests/support/cli.h"

// A run that was stopped and resumed, at whatever point and by whatever means, must end with the
// same bits as one that never stopped.
namespace focus {
namespace {

struct RunKind {
  std::string name;
  Words keys;  // of a retrofit, or of what they say
  std::vector<int> stops;
};
void PrintTo(const RunKind& kind, std::ostream* stream) { *stream << kind.name; }

class Resume : public testing::TestWithParam<RunKind> {
 protected:
  /// 23 windows in an epoch: some steps of 4 begin in one epoch and end in the next.
  static Words command(const std::string& out, const Words& more = {}) {
    const Words& keys = GetParam().keys;
    const bool scratch = std::ranges::count(keys, "method=scratch") > 0;
    return (scratch ? cli().scratch(keys) : cli().retrofit(keys)) +
           words("out={} steps=9 data.batch=4 eval_every=4", out) + more;
  }
};

TEST_P(Resume, StoppedAnywhereEqualsUninterrupted) {
  const std::string whole = cli().fresh("whole");
  cli().must_run(command(whole));
  for (const int stop : GetParam().stops) {
    SCOPED_TRACE(fmt::format("stopped at step {}", stop));
    const std::string out = cli().fresh("stopped");
    const ProcessResult first = cli().must_run(command(out, {"--stop-at", std::to_string(stop)}));
    expect_parts(first.err, {fmt::format("stopped at step {}", stop)});
    for (const char* result : {"focus.h5", "model.h5", "lora.h5", "adapter_config.json"})
      EXPECT_FALSE(fs::exists(fs::path(out) / result)) << result;
    const ProcessResult second = cli().must_run(command(out, {"--resume"}));
    expect_parts(second.err, {fmt::format("resumed at step {} from", stop)});
    expect_same_run(out, whole);
  }
}

TEST_P(Resume, StoppedAfterEveryStepEqualsUninterrupted) {
  const std::string whole = cli().fresh("whole"), out = cli().fresh("stepwise");
  cli().must_run(command(whole));
  for (int step = 1; step <= 9; ++step)
    cli().must_run(command(out, {"--resume", "--stop-at", std::to_string(step)}));
  expect_same_run(out, whole);
}

const std::vector<RunKind> kKinds = {
    {"retrofit", {}, {1, 4, 7, 8}},
    {"retrofit_accumulated", "data.gradient_accumulation_steps=2", {3, 5}},
    {"retrofit_hard", "focus.training=hard focus.local_window=4", {2, 5}},
    {"retrofit_sequence", "focus.tokens.balance=sequence", {2, 6}},
    {"retrofit_sequence_first", "focus.tokens.sequence_steps=5", {3, 5, 7}},
    {"retrofit_bf16", "precision=bf16", {3, 6}},
    {"retrofit_q8", "precision=q8", {4}},
    {"retrofit_logit_unbalanced", "focus.tokens.gate=logit focus.tokens.balance=none", {4}},
    {"retrofit_losses_averaged",
     "focus.tokens.balance=none focus.ablations.balance_loss=0.5 focus.ablations.entropy_loss=0.5 "
     "focus.ablations.centroid_update=average focus.ablations.stop_gradient=true",
     {3, 6}},
    {"retrofit_reclustered",
     "focus.ablations.recluster_every=3 data.gradient_accumulation_steps=2",
     {2, 3, 5}},
    {"keys", "focus.grouping=keys focus.training=summary focus.keys.fit_tokens=512", {3}},
    {"keys_logits",
     "focus.grouping=keys focus.training=summary focus.objective=logit_distillation",
     {3}},
    {"keys_layers",
     "focus.grouping=keys focus.training=summary focus.objective=layer_distillation",
     {3}},
    {"indexer", "attention=indexer:6:local_window=3:heads=2", {3}},
    {"lora", "method=lora lora.dropout=0.2 data.gradient_accumulation_steps=2", {3, 6}},
    {"lora_bf16", "method=lora lora.r=2 precision=bf16", {5}},
    {"lora_distilled",
     "method=lora attention=focus focus.grouping=keys focus.training=summary "
     "focus.objective=logit_distillation focus.lm_weight=0.5 lora.dropout=0.2",
     {3}},
    {"two_phase_lora",
     "method=two_phase two_phase.method=lora two_phase.phase1_steps=4 "
     "focus.training=hard focus.objective=logit_distillation",
     {3, 4, 6}},
    {"two_phase",
     "method=two_phase two_phase.phase1_steps=5 two_phase.warmup_steps=2",
     {3, 5, 6, 8}},
    {"two_phase_sequence_first",
     "method=two_phase two_phase.phase1_steps=4 focus.tokens.sequence_steps=3 "
     "data.gradient_accumulation_steps=2",
     {3, 4, 5}},
    {"two_phase_bf16", "method=two_phase two_phase.phase1_steps=4 precision=bf16", {3, 4, 6}},
    {"two_phase_dropout", "method=two_phase two_phase.phase1_steps=4 model.dropout=0.2", {4, 6}},
    {"full_focus", "method=full attention=focus", {5}},
    {"full_dense", "method=full data.shuffle=false", {5}},
    {"scratch_dense", "method=scratch optim.weight_decay=0.1", {1, 6}},
    {"scratch_bf16", "method=scratch precision=bf16 data.gradient_accumulation_steps=2", {3, 6}},
    {"scratch_dropout",
     "method=scratch model.model_type=gpt2 model.dropout=0.2 data.gradient_accumulation_steps=2",
     {3, 6}},
    {"scratch_focus", "method=scratch attention=focus", {4}},
    {"window", "method=scratch attention=window:11", {5}},
    {"performer", "method=scratch attention=performer:16", {5}},
    {"routing", "method=scratch attention=routing_transformer:3:local_window=4", {5}},
    {"sink_window", "method=scratch attention=sink_window:9", {5}}};
INSTANTIATE_TEST_SUITE_P(Cli, Resume, testing::ValuesIn(kKinds),
                         [](const auto& test) { return test.param.name; });

TEST(CliResume, AFinishedRunStaysAsItIs) {
  const std::string out = cli().fresh("finished");
  cli().must_run(cli().retrofit({"out=" + out}));
  const auto before = snapshot(out);
  const auto records = metrics_of(out);
  const auto figures = cli().figures(cli().retrofit({"out=" + out, "--resume"}));
  EXPECT_EQ(snapshot(out), before);
  EXPECT_EQ(figures.at("finished"), true);
  EXPECT_EQ(figures.at("valid_loss").get<double>(), records.back().at("valid_loss").get<double>());
  EXPECT_EQ(figures.at("valid_loss_start").get<double>(),
            records.front().at("valid_loss").get<double>());
}

TEST(CliResume, TheNumberOfThreadsChangesNoBit) {
  const auto with_threads = [&](const Words& command, int threads) {
    const std::string out = cli().fresh("threads");
    cli().must_run(command + Words{"out=" + out, fmt::format("threads={}", threads)});
    return out;
  };
  for (const Words& command :
       {cli().retrofit({"data.batch=4"}), cli().scratch({"data.batch=4"}),
        cli().retrofit({"data.batch=4", "precision=bf16"}),
        cli().retrofit({"data.batch=4", "precision=q8"}),
        cli().scratch({"data.batch=4", "precision=bf16"}),
        cli().retrofit({"data.batch=4", "method=two_phase", "two_phase.phase1_steps=4"}),
        cli().retrofit({"data.batch=16", "method=lora", "lora.dropout=0.2", "steps=3"}),
        cli().scratch({"data.batch=16", "model.model_type=gpt2", "model.dropout=0.2", "steps=3"}),
        cli().scratch({"attention=focus", "model.model_type=gpt2"})}) {
    const std::string one = with_threads(command, 1);
    for (const int threads : {2, 3}) expect_same_run(with_threads(command, threads), one);
  }
}

class Signal : public testing::TestWithParam<int> {};

TEST_P(Signal, WritesACheckpointAndExitsCleanly) {
  const std::string out = cli().fresh("signal"), whole = cli().fresh("uninterrupted");
  // Long enough for a signal to come in between.
  const Words command = cli().retrofit("steps=120 data.batch=4");
  const auto process = cli().start(command + Words{"out=" + out});
  const fs::path metrics = fs::path(out) / "metrics.jsonl";
  ASSERT_TRUE(Process::wait_until(
      kRunSeconds, [&] { return fs::exists(metrics) && lines_of(read_text(metrics)).size() > 5; }));
  process->send(GetParam());
  const ProcessResult stopped = process->wait(kRunSeconds);
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  expect_parts(stopped.err, {"stopped at step "});
  EXPECT_FALSE(fs::exists(out + "/focus.h5"));
  const std::string latest = lines_of(read_text(out + "/checkpoints/latest")).at(0);
  const int step = cli().figures(words("info {}/checkpoints/{}", out, latest)).at("step");
  EXPECT_GE(step, 5);
  EXPECT_LT(step, 120);
  cli().must_run(command + words("out={} --resume", out));
  cli().must_run(command + Words{"out=" + whole});
  expect_same_run(out, whole);
}
INSTANTIATE_TEST_SUITE_P(Cli, Signal, testing::Values(SIGTERM, SIGINT),
                         [](const auto& test) { return test.param == SIGTERM ? "Term" : "Int"; });

TEST(CliResume, WhatAKilledRunLeftHalfWrittenIsSweptAway) {
  const std::string out = cli().fresh("orphans");
  cli().must_run(cli().retrofit({"out=" + out, "--stop-at", "2"}));
  // No process has so high a number.
  const std::string name = "/.config.yaml.focus-tmp-999999999-0123456789abcdef-0";
  for (const std::string& folder : {out, out + "/checkpoints"}) write_text(folder + name, "half");
  cli().must_run(cli().retrofit({"out=" + out, "--resume"}));
  for (const std::string& folder : {out, out + "/checkpoints"})
    EXPECT_FALSE(fs::exists(folder + name)) << folder;
}

TEST(CliResume, OldFileIsTakenWhereTheNewestIsDamaged) {
  const std::string out = cli().fresh("damaged"), whole = cli().fresh("whole");
  cli().must_run(cli().retrofit({"out=" + whole}));
  cli().must_run(cli().retrofit({"out=" + out, "checkpoint_every=2", "--stop-at", "6"}));
  const std::string newest = out + "/checkpoints/step_000006.h5";
  fs::resize_file(newest, fs::file_size(newest) / 2);
  const ProcessResult resumed = cli().must_run(cli().retrofit({"out=" + out, "--resume"}));
  expect_parts(resumed.err, {"resumed at step 4 from"});
  expect_same_run(out, whole);
}

}  // namespace
}  // namespace focus
