#include <csignal>

#include "tests/support/launcher.h"

// Several processes that share a training by MPI leave what one process leaves, bit for bit.
namespace focus {
namespace {

struct SharedMethod {
  std::string name;
  bool scratch;
  Words keys;
};
void PrintTo(const SharedMethod& method, std::ostream* stream) { *stream << method.name; }

class Processes : public testing::TestWithParam<SharedMethod> {
 protected:
  /// Four parts a step; 3 processes have one part more or less.
  static Words command(const std::string& out, const Words& more = {}) {
    const Words own = GetParam().keys +
                      Words{"out=" + out,        "steps=6",
                            "data.batch=1",      "data.gradient_accumulation_steps=4",
                            "eval_every=3",      "eval_windows=5",
                            "checkpoint_every=2"} +
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
    testing::Values(SharedMethod{"carried",
                                 false,
                                 {"focus.tokens.balance=carried", "focus.tokens.sequence_steps=2"}},
                    SharedMethod{"keys",
                                 false,
                                 {"focus.grouping=keys", "focus.training=summary",
                                  "focus.objective=logit_distillation"}},
                    SharedMethod{"lora", false, {"method=lora", "lora.target_modules=[q_proj]"}},
                    SharedMethod{"full", false, {"method=full"}},
                    SharedMethod{"scratch", true, {"attention=focus", "model.dropout=0.1"}}),
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
  for (int i = 0; i < 6000 && !fs::exists(out + "/checkpoints/step_000002.h5"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
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
  const ProcessResult more = run_together(2, command(alone, 6, 1) + Words{"--resume"});
  EXPECT_NE(more.status, 0);
  EXPECT_TRUE(contains(more.err, "a step of this run has 1 micro-batches")) << more.err;
}

TEST(Processes, RefuseWhatTheyCannotShare) {
  SKIP_WITHOUT_LAUNCHER();
  const auto refused = [](int count, const Words& words, const std::string& why) {
    const ProcessResult result = run_together(count, words);
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.err, why)) << result.err;
  };
  refused(3, cli().retrofit({"out=" + cli().fresh("run"), "data.batch=2"}),
          "process 0 of 3: data.batch 2 and data.gradient_accumulation_steps 1: a step has 2 "
          "windows, too few for 3 processes; start at most 2");
  refused(2,
          cli().retrofit({"out=" + cli().fresh("run"), "data.gradient_accumulation_steps=2",
                          "focus.ablations.recluster_every=2"}),
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

}  // namespace
}  // namespace focus
