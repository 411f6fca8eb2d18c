#include <chrono>
#include <thread>

#include "autograd/base/random.h"
#include "tests/reliability/campaign.h"
#include "tests/reliability/jobs.h"
#include "tests/support/launcher.h"

// What the machine and its other processes do to a run without meaning it: a clock that jumps,
// neighbours that take the processors, one of several processes that is killed.
namespace focus {
namespace {

class Clock : public Disturbed {
 protected:
  static ProcessResult run_by(const Words& command, int at, long by) {
    return cli()
        .start_by({}, command,
                  {{"LD_PRELOAD", FOCUS_CLOCK_LIBRARY},
                   {"FOCUS_CLOCK_AT", std::to_string(at)},
                   {"FOCUS_CLOCK_BY", std::to_string(by)}})
        ->wait(kRunSeconds);
  }
};

TEST_P(Clock, MayJump) {
  const Job& job = GetParam();
  constexpr long kHour = 3600, kYear = 365 * 24 * kHour;
  const std::vector<int> looks =
      campaign().whole() ? std::vector<int>{1, 2, 3, 5, 10, 20, 50, 100} : std::vector<int>{1, 3};
  for (const long by : {-kHour, kYear})
    for (const int at : looks) {
      SCOPED_TRACE(fmt::format("{}: by {} s at look {}", job.name, by, at));
      const std::string out = cli().fresh("jumped" + job.ending);
      const ProcessResult result = run_by(job.command(out), at, by);
      ASSERT_EQ(result.status, 0) << result.err;
      expect_whole(out);
      expect_nothing_left_over(out);
      // What is there is of another time now.
      const ProcessResult again = run_by(job.again(out), at, -by);
      ASSERT_EQ(again.status, 0) << again.err;
      expect_whole(out);
      fs::remove_all(out);
    }
}

INSTANTIATE_TEST_SUITE_P(Reliability, Clock, testing::ValuesIn(jobs()),
                         [](const auto& test) { return test.param.name; });

TEST(ClockOfRuns, MayJumpBetweenTheCheckpointAndItsResumption) {
  const std::string alone = cli().fresh("alone");
  cli().must_run(train(alone));
  for (const char* by : {"-3600", "31536000"}) {
    const std::string out = cli().fresh("jumped");
    cli().must_run(train(out) + Words{"--stop-at", "2"});
    const ProcessResult rest = cli()
                                   .start_by({}, train(out) + Words{"--resume"},
                                             {{"LD_PRELOAD", FOCUS_CLOCK_LIBRARY},
                                              {"FOCUS_CLOCK_AT", "1"},
                                              {"FOCUS_CLOCK_BY", by}})
                                   ->wait(kRunSeconds);
    ASSERT_EQ(rest.status, 0) << rest.err;
    expect_same_run(out, alone);
  }
}

TEST(Neighbours, ChangeNoBit) {
  const auto command = [](const std::string& out) {
    return cli().retrofit(
        {"out=" + out, "steps=30", "threads=2", "eval_every=10", "checkpoint_every=10"});
  };
  const std::string alone = cli().fresh("alone");
  cli().must_run(command(alone));
  const auto processors = std::max(2u, std::thread::hardware_concurrency());
  std::vector<std::unique_ptr<Process>> neighbours;
  for (unsigned i = 0; i < processors; ++i)
    neighbours.push_back(std::make_unique<Process>(
        Words{"/usr/bin/nice", "-n", "5", "/bin/sh", "-c", "while :; do :; done"},
        std::vector<std::pair<std::string, std::string>>{}));
  for (int i = 0; i < (campaign().whole() ? 20 : 1); ++i) {
    const std::string out = cli().fresh("crowded");
    cli().must_run(command(out));
    expect_same_run(out, alone);
  }
}

TEST(Ranks, KilledAtRandomLoseNothing) {
  SKIP_WITHOUT_LAUNCHER();
  constexpr int kRanks = 3;
  const auto command = [](const std::string& out) {
    return cli().retrofit({"out=" + out, "steps=12", "data.batch=1",
                           "data.gradient_accumulation_steps=3", "checkpoint_every=1",
                           "eval_windows=1", "eval_every=4"});
  };
  const std::string alone = cli().fresh("alone"), timed = cli().fresh("timed");
  cli().must_run(command(alone));
  const auto start = std::chrono::steady_clock::now();
  must_run_together(kRanks, command(timed));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const int kills = campaign().whole() ? 50 : 1;
  Rng rng(29);
  int killed = 0;
  for (int i = 0; killed < kills && i < 5 * kills; ++i) {
    const std::string out = cli().fresh("killed");
    const auto run = start_together(kRanks, command(out) + Words{"--resume"});
    std::this_thread::sleep_for(std::chrono::duration<double>(rng.uniform() * seconds));
    const int rank = static_cast<int>(rng.below(kRanks));
    const pid_t victim = process_of_rank("out=" + out, rank);
    if (victim > 0 && kill(victim, SIGKILL) == 0) ++killed;
    SCOPED_TRACE(fmt::format("kill {} of rank {}", i, rank));
    const ProcessResult result = run->wait(kRunSeconds);
    ASSERT_FALSE(result.timed_out);
    for (const auto& [name, checksum] : snapshot(out))
      if (name.ends_with(".h5") && !contains(name, ".focus-tmp-"))
        StoreReader(fs::path(out) / name).verify();
    must_run_together(2, command(out) + Words{"--resume"});
    expect_same_run(out, alone);
    for (const auto& [name, checksum] : snapshot(out))
      EXPECT_FALSE(contains(name, ".focus-tmp-")) << name;
    if (testing::Test::HasFailure()) return;
    fs::remove_all(out);
  }
  EXPECT_GE(killed, kills) << "too few came in time";
  fmt::print("{} kills of one of {} processes\n", killed, kRanks);
}

}  // namespace
}  // namespace focus
