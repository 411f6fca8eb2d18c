// Several processes that share a training by MPI leave what one process leaves, bit for bit.
#include <csignal>

#include "tests/support/launcher.h"

namespace focus {
namespace {

struct SharedMethod {
  std::string name;
  bool scratch;
  Words keys;
};
void PrintTo(const SharedMethod& method, std::ostream* stream) { *stream << method.name; }

void expect_refused_together(int processes, const Words& command, const std::string& why) {
  const ProcessResult result = run_together(processes, command);
  EXPECT_NE(result.status, 0);
  expect_parts(result.err, {why});
}

class Processes : public testing::TestWithParam<SharedMethod> {
 protected:
  /// Four parts a step; 3 processes have one part more or less.
  static Words command(const std::string& out, const Words& more = {}) {
    const Words own = GetParam().keys +
                      words(
                          "out={} steps=6 data.batch=1 data.gradient_accumulation_steps=4 "
                          "eval_every=3 eval_windows=5 checkpoint_every=2",
                          out) +
                      more;
    return GetParam().scratch ? cli().scratch(own) : cli().retrofit(own);
  }
};

TEST_P(Processes, AnyNumberOfThemGivesTheSameBits) {
  SKIP_WITHOUT_LAUNCHER();
  const std::string alone = cli().fresh("alone");
  cli().must_run(command(alone));
  for (const int count : {1, 2, 3, 4}) {
    SCOPED_TRACE(fmt::format("{} processes", count));
    const std::string together = cli().fresh("together");
    must_run_together(count, command(together));
    expect_same_run(together, alone);
    for (const auto& record : read_metrics(fs::path(together) / "metrics.jsonl")) {
      if (!record.contains("loss")) continue;
      EXPECT_EQ(record.value("exchange_seconds", 0.0) > 0, count > 1) << record;
      EXPECT_EQ(record.value("wait_seconds", 0.0) > 0, count > 1) << record;
    }
  }
}

TEST_P(Processes, AnotherNumberGoesOnFromACheckpoint) {
  SKIP_WITHOUT_LAUNCHER();
  const std::string alone = cli().fresh("alone"), together = cli().fresh("together");
  cli().must_run(command(alone));
  must_run_together(3, command(together, {"--stop-at", "2"}));
  must_run_together(2, command(together, {"--stop-at", "5", "--resume"}));
  cli().must_run(command(together, {"--resume"}));
  expect_same_run(together, alone);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, Processes,
    testing::Values(SharedMethod{"carried", false,
                                 "focus.tokens.balance=carried focus.tokens.sequence_steps=2"},
                    SharedMethod{"keys", false,
                                 "focus.grouping=keys focus.training=summary "
                                 "focus.objective=logit_distillation"},
                    SharedMethod{"lora", false, "method=lora lora.target_modules=[q_proj]"},
                    SharedMethod{"distilled", false,
                                 "method=lora attention=focus focus.training=hard "
                                 "focus.objective=logit_distillation focus.lm_weight=0.5"},
                    SharedMethod{"full", false, "method=full"},
                    SharedMethod{"scratch", true, "attention=focus model.dropout=0.1"}),
    [](const auto& method) { return method.param.name; });

TEST(Processes, OneThatIsKilledEndsTheRunAndLeavesItsCheckpoint) {
  SKIP_WITHOUT_LAUNCHER();
  const auto command = [](const std::string& out) {
    return cli().retrofit({"out=" + out, "steps=60", "data.batch=1",
                           "data.gradient_accumulation_steps=3", "checkpoint_every=1",
                           "eval_windows=1"});
  };
  const std::string alone = cli().fresh("alone"), out = cli().fresh("killed");
  cli().must_run(command(alone));
  const auto run = start_together(3, command(out));
  Process::wait_until(30, [&] { return fs::exists(out + "/checkpoints/step_000002.h5"); });
  ASSERT_NO_FATAL_FAILURE(kill_rank_1(*run, "out=" + out));
  EXPECT_FALSE(fs::exists(out + "/focus.h5"));
  must_run_together(2, command(out) + Words{"--resume"});
  expect_same_run(out, alone);
}

/// Three windows a part and two parts: three processes make six parts of it, two keep two.
TEST(Processes, DivideAStepsWindowsAndResumeByTheSameParts) {
  SKIP_WITHOUT_LAUNCHER();
  const auto command = [](const std::string& out, int batch, int parts) {
    return cli().retrofit({"out=" + out, fmt::format("data.batch={}", batch),
                           fmt::format("data.gradient_accumulation_steps={}", parts), "steps=4",
                           "checkpoint_every=2"});
  };
  const std::string two = cli().fresh("two"), six = cli().fresh("six");
  cli().must_run(command(two, 3, 2));
  cli().must_run(command(six, 1, 6));
  const std::string together = cli().fresh("together");
  must_run_together(2, command(together, 6, 1));
  expect_same_run(together, two);
  must_run_together(3, command(together, 3, 2) + Words{"--overwrite", "--stop-at", "2"});
  must_run_together(2, command(together, 3, 2) + Words{"--resume", "--stop-at", "3"});
  cli().must_run(command(together, 3, 2) + Words{"--resume"});
  expect_same_run(together, six);
  const std::string alone = cli().fresh("alone");
  cli().must_run(command(alone, 6, 1) + Words{"--stop-at", "2"});
  expect_refused_together(2, command(alone, 6, 1) + "--resume",
                          "a step of this run has 1 micro-batches");
}

TEST(Processes, RefuseWhatTheyCannotShare) {
  SKIP_WITHOUT_LAUNCHER();
  const auto run = [] { return cli().retrofit({"out=" + cli().fresh("run")}); };
  expect_refused_together(
      3, run() + "data.batch=2",
      "process 0 of 3: data.batch 2 and data.gradient_accumulation_steps 1: a step has 2 "
      "windows, too few for 3 processes; start at most 2");
  expect_refused_together(
      2, run() + "data.gradient_accumulation_steps=2 focus.ablations.recluster_every=2",
      "its centroids are updated after each micro-batch");
}

TEST(Processes, CommandsForOneProcessSaySoOnce) {
  SKIP_WITHOUT_LAUNCHER();
  for (const Words& command :
       {Words{"info", cli().base()}, Words{"generate", cli().base(), "--prompt", "once"}}) {
    const ProcessResult result = run_together(3, command);
    EXPECT_NE(result.status, 0);
    const Words lines = lines_of(result.err);
    EXPECT_EQ(std::ranges::count(lines, "focus " + command[0] +
                                            ": one process runs this; start it without mpirun"),
              1)
        << result.err;
    EXPECT_EQ(result.out, "");
  }
}

// Several processes that share an evaluation print and write what one process does.

/// What a command printed, without the tokens in a second of tables of perplexities.
std::string without_rates(const std::string& out) {
  std::string kept;
  std::size_t begin = 0, end = 0;  // of the column tok/s, as wide as its rates; 0 outside the table
  for (std::string line : lines_of(out)) {
    if (line.starts_with("attention ") && contains(line, "tok/s")) {
      end = line.find("tok/s") + 5;
      begin = line.rfind("tokens", end) + 6;
    }
    if (line.empty()) end = 0;
    if (end > 0 && line.size() > end) line.erase(begin, end - begin);
    kept += line + "\n";
  }
  return kept;
}

void expect_same_evaluation(const Words& command, const Words& files) {
  const auto with_files = [&](const std::string& figures) {
    Words all = command;
    for (const std::string& file : files) all = all + Words{"--" + file, figures + "." + file};
    return all;
  };
  const std::string wanted = cli().fresh("wanted");
  const ProcessResult alone = cli().must_run(with_files(wanted));
  for (const int count : {1, 2, 3, 4}) {
    SCOPED_TRACE(fmt::format("{} processes", count));
    const std::string figures = cli().fresh("figures");
    const ProcessResult together = must_run_together(count, with_files(figures));
    EXPECT_EQ(without_rates(together.out), without_rates(alone.out));
    for (const std::string& file : files)
      EXPECT_TRUE(read_text(figures + "." + file) == read_text(wanted + "." + file)) << file;
  }
}

TEST(SharedEvaluation, WindowsHaveTheFiguresOfOneProcess) {
  SKIP_WITHOUT_LAUNCHER();
  expect_same_evaluation(
      "eval {base} --adapter {adapter} --text {train} {valid} --context 32 --stride 2 "
      "--against dense --attention dense,soft,hard:1,window:6 "
      "--recall recall:documents=3:keys=3 --beyond-positions",
      {"json", "html"});
}

TEST(SharedEvaluation, WhatIsWrongIsToldOnceAndNamesTheProcess) {
  SKIP_WITHOUT_LAUNCHER();
  const std::string missing = cli().fresh("none.txt");
  const ProcessResult result = run_together(3, {"eval", cli().base(), "--text", missing});
  EXPECT_NE(result.status, 0);
  const Words lines = lines_of(result.err);
  EXPECT_EQ(std::ranges::count_if(
                lines, [](const std::string& line) { return line.starts_with("focus eval: "); }),
            1)
      << result.err;
  expect_parts(result.err, {"focus eval: process 0 of 3: " + missing});
}

}  // namespace
}  // namespace focus
