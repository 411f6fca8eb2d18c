#include <chrono>
#include <thread>

#include "autograd/base/random.h"
#include "tests/reliability/campaign.h"
#include "tests/reliability/jobs.h"

// Commands that are killed at random moments (SIGKILL) lose nothing but what they were at: what
// lies there under its final name verifies, the same command ends with the bits of one that was
// never killed, and nothing half-written stays.
namespace focus {
namespace {

class Killed : public Disturbed {
 protected:
  /// Seconds that the command takes here and now.
  static double duration(const Job& job) {
    const auto start = std::chrono::steady_clock::now();
    cli().must_run(job.command(cli().fresh("timed" + job.ending)));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

TEST_P(Killed, LoseNothing) {
  const Job& job = GetParam();
  const int kills = campaign().whole() ? 125 : 3;
  double seconds = duration(job);
  Rng rng(17);
  int killed = 0;
  for (int i = 0; killed < kills && i < 10 * kills; ++i) {
    const std::string out = cli().fresh("killed" + job.ending);
    // Some are killed again while they make good what the first kill left undone.
    for (int times = 1 + static_cast<int>(rng.below(2)); times > 0; --times) {
      const auto process = cli().start(job.again(out));
      std::this_thread::sleep_for(std::chrono::duration<double>(rng.uniform() * seconds));
      process->send(SIGKILL);
      const bool came_in_time = process->wait(kRunSeconds).status == -SIGKILL;
      killed += came_in_time;
      if (!came_in_time) seconds *= 0.8;  // the machine is less busy than when it was timed
      expect_what_is_there_verifies(out);
    }
    ProcessResult again;
    // What a comparison had started ends its step and bars the folder until then.
    Process::wait_until(kRunSeconds, [&] {
      again = cli().run(job.again(out));
      return !contains(again.err, "uses this folder");
    });
    ASSERT_EQ(again.status, 0) << "kill " << i << ": " << again.err;
    expect_whole(out);
    expect_nothing_left_over(out);
    if (HasFailure()) return;
    fs::remove_all(out);
  }
  EXPECT_GE(killed, kills) << "too few came in time";
  fmt::print("{}: {} kills\n", job.name, killed);
}

INSTANTIATE_TEST_SUITE_P(Reliability, Killed, testing::ValuesIn(jobs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace focus
