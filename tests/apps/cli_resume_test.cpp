#include <set>

#include "autograd/base/random.h"
#include "tests/support/cli.h"

// A run that was stopped and resumed, at whatever point and by whatever means, must end with the
// same bits as one that never stopped.
namespace focus {
namespace {

struct RunKind {
  std::string name;
  Words keys;
  std::vector<int> stops;
};
void PrintTo(const RunKind& kind, std::ostream* stream) { *stream << kind.name; }

class Resume : public testing::TestWithParam<RunKind> {
 protected:
  /// 23 windows in an epoch: some steps of 4 begin in one epoch and end in the next.
  static Words command(const std::string& out, const Words& more = {}) {
    const Words& keys = GetParam().keys;
    const Words start = keys[0] == "method=scratch" ? cli().scratch(keys) : cli().retrofit(keys);
    return start + Words{"out=" + out, "steps=9", "data.batch=4", "eval_every=4"} + more;
  }
};

TEST_P(Resume, StoppedAnywhereEqualsUninterrupted) {
  const std::string whole = cli().fresh("whole");
  cli().must_run(command(whole));
  for (const int stop : GetParam().stops) {
    SCOPED_TRACE(fmt::format("stopped at step {}", stop));
    const std::string out = cli().fresh("stopped");
    const ProcessResult first = cli().must_run(command(out, {"--stop-at", std::to_string(stop)}));
    EXPECT_TRUE(contains(first.err, fmt::format("stopped at step {}", stop))) << first.err;
    EXPECT_FALSE(fs::exists(out + "/focus.h5") || fs::exists(out + "/model.h5") ||
                 fs::exists(out + "/lora.h5") || fs::exists(out + "/adapter_config.json"));
    const ProcessResult second = cli().must_run(command(out, {"--resume"}));
    EXPECT_TRUE(contains(second.err, fmt::format("resumed at step {} from", stop))) << second.err;
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

INSTANTIATE_TEST_SUITE_P(
    Cli, Resume,
    testing::Values(
        RunKind{"retrofit", {"method=retrofit"}, {1, 4, 7, 8}},
        RunKind{"retrofit_accumulated",
                {"method=retrofit", "data.gradient_accumulation_steps=2"},
                {3, 5}},
        RunKind{"retrofit_hard",
                {"method=retrofit", "focus.training=hard", "focus.local_window=4"},
                {2, 5}},
        RunKind{"retrofit_sequence", {"method=retrofit", "focus.tokens.balance=sequence"}, {2, 6}},
        RunKind{"retrofit_sequence_first",
                {"method=retrofit", "focus.tokens.sequence_steps=5"},
                {3, 5, 7}},
        RunKind{"retrofit_bf16", {"method=retrofit", "precision=bf16"}, {3, 6}},
        RunKind{"retrofit_q8", {"method=retrofit", "precision=q8"}, {4}},
        RunKind{"retrofit_logit_unbalanced",
                {"method=retrofit", "focus.tokens.gate=logit", "focus.tokens.balance=none"},
                {4}},
        RunKind{"retrofit_losses_averaged",
                {"method=retrofit", "focus.tokens.balance=none", "focus.ablations.balance_loss=0.5",
                 "focus.ablations.entropy_loss=0.5", "focus.ablations.centroid_update=average",
                 "focus.ablations.stop_gradient=true"},
                {3, 6}},
        RunKind{"retrofit_reclustered",
                {"method=retrofit", "focus.ablations.recluster_every=3",
                 "data.gradient_accumulation_steps=2"},
                {2, 3, 5}},
        RunKind{"lora",
                {"method=lora", "lora.dropout=0.2", "data.gradient_accumulation_steps=2"},
                {3, 6}},
        RunKind{"lora_bf16", {"method=lora", "lora.r=2", "precision=bf16"}, {5}},
        RunKind{"two_phase",
                {"method=two_phase", "two_phase.phase1_steps=5", "two_phase.warmup_steps=2"},
                {3, 5, 6, 8}},
        RunKind{"two_phase_sequence_first",
                {"method=two_phase", "two_phase.phase1_steps=4", "focus.tokens.sequence_steps=3",
                 "data.gradient_accumulation_steps=2"},
                {3, 4, 5}},
        RunKind{"full_focus", {"method=full", "attention=focus"}, {5}},
        RunKind{"full_dense", {"method=full", "data.shuffle=false"}, {5}},
        RunKind{"scratch_dense", {"method=scratch", "optim.weight_decay=0.1"}, {1, 6}},
        RunKind{"scratch_bf16",
                {"method=scratch", "precision=bf16", "data.gradient_accumulation_steps=2"},
                {3, 6}},
        RunKind{"two_phase_bf16",
                {"method=two_phase", "two_phase.phase1_steps=4", "precision=bf16"},
                {3, 4, 6}},
        RunKind{"scratch_dropout",
                {"method=scratch", "model.model_type=gpt2", "model.dropout=0.2",
                 "data.gradient_accumulation_steps=2"},
                {3, 6}},
        RunKind{"two_phase_dropout",
                {"method=two_phase", "two_phase.phase1_steps=4", "model.dropout=0.2"},
                {4, 6}},
        RunKind{"scratch_focus", {"method=scratch", "attention=focus"}, {4}}),
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

/// 120 steps: long enough for a signal to come in between.
Words long_run(const std::string& out, const Words& more = {}) {
  return cli().retrofit(Words{"out=" + out, "steps=120", "data.batch=4"} + more);
}
const std::string& uninterrupted() {
  static const std::string run = [] {
    const std::string out = cli().fresh("uninterrupted");
    cli().must_run(long_run(out));
    return out;
  }();
  return run;
}

std::size_t metrics_lines(const std::string& out) {
  return fs::exists(out + "/metrics.jsonl") ? lines_of(read_text(out + "/metrics.jsonl")).size()
                                            : 0;
}

class Signal : public testing::TestWithParam<int> {};

TEST_P(Signal, WritesACheckpointAndExitsCleanly) {
  const std::string out = cli().fresh("signal");
  const auto process = cli().start(long_run(out));
  ASSERT_TRUE(Process::wait_until(kRunSeconds, [&] { return metrics_lines(out) > 5; }));
  process->send(GetParam());
  const ProcessResult stopped = process->wait(kRunSeconds);
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  ASSERT_TRUE(contains(stopped.err, "stopped at step ")) << stopped.err;
  EXPECT_FALSE(fs::exists(out + "/focus.h5"));
  const auto info = cli().figures(
      {"info", out + "/checkpoints/" + lines_of(read_text(out + "/checkpoints/latest")).at(0)});
  EXPECT_GE(info.at("step").get<int>(), 5);
  EXPECT_LT(info.at("step").get<int>(), 120);
  cli().must_run(long_run(out, {"--resume"}));
  expect_same_run(out, uninterrupted());
}
INSTANTIATE_TEST_SUITE_P(Cli, Signal, testing::Values(SIGTERM, SIGINT),
                         [](const auto& test) { return test.param == SIGTERM ? "Term" : "Int"; });

TEST(CliResume, KilledAgainAndAgainEndsTheSame) {
  const std::string out = cli().fresh("killed"), latest = out + "/checkpoints/latest";
  const Words keys = {"checkpoint_every=1", "--resume"};
  const auto named = [&] { return fs::exists(latest) ? read_text(latest) : std::string(); };
  Rng rng(5);
  std::set<std::string> points;
  int killed = 0;
  for (int round = 0; round < 10; ++round) {
    const std::string before = named();
    const auto process = cli().start(long_run(out, keys));
    // Two of three after some progress, so that the rounds get somewhere; one while it starts.
    if (round % 3 != 2)
      Process::wait_until(kRunSeconds, [&] { return named() != before || process->ended(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(rng.below(40)));
    process->send(SIGKILL);
    killed += process->wait(kRunSeconds).status == -SIGKILL;
    if (named().empty()) continue;
    const std::string name = lines_of(named()).at(0);
    points.insert(name);
    const ProcessResult info = cli().run({"info", out + "/checkpoints/" + name});
    EXPECT_EQ(info.status, 0) << info.err;
    EXPECT_TRUE(contains(info.out, "all verified")) << info.out;
  }
  EXPECT_GE(killed, 5);
  EXPECT_GE(points.size(), 3u) << "no progress between the kills";
  cli().must_run(long_run(out, keys));
  expect_same_run(out, uninterrupted());
  for (const auto& [name, checksum] : snapshot(out))
    EXPECT_FALSE(contains(name, "tmp")) << "left behind: " << name;
}

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
  EXPECT_TRUE(contains(resumed.err, "resumed at step 4 from")) << resumed.err;
  expect_same_run(out, whole);
}

}  // namespace
}  // namespace focus
