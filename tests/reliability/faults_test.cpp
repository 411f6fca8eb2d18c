// Every call of a command that opens, reads, writes, syncs, renames, cuts or maps a file fails
// once, in each way that the system knows. The command may overcome that, with the bits of an
// undisturbed run; or it ends with status 1 and one line that names a file, what was complete
// before still opens and verifies, and the same command without the fault ends with the bits of the
// undisturbed one.
#include <chrono>
#include <thread>

#include "tests/reliability/jobs.h"

namespace focus {
namespace {

ProcessResult run_with_fault(const Words& command, const std::string& kind, int at,
                             const std::string& log) {
  return run_by({}, command,
                {{"LD_PRELOAD", FOCUS_FAULT_LIBRARY},
                 {"FOCUS_FAULT_UNDER", fs::path(cli().fresh("x")).parent_path().string()},
                 {"FOCUS_FAULT_KIND", kind},
                 {"FOCUS_FAULT_AT", std::to_string(at)},
                 {"FOCUS_FAULT_LOG", log}});
}

/// Calls that can fail in this way while the command goes by undisturbed.
int calls(const Job& job, const std::string& kind) {
  const std::string log = cli().fresh("log");
  const ProcessResult result =
      run_with_fault(job.command(cli().fresh("counted" + job.ending)), kind, 0, log);
  if (result.status != 0) throw std::runtime_error(result.err);
  return std::stoi(read_text(log));
}

class Faults : public Disturbed {
 protected:
  void disturb(const std::string& kind, int at) {
    const Job& job = GetParam();
    const std::string out = cli().fresh("disturbed" + job.ending), log = cli().fresh("log");
    const Words command = job.command(out);
    const ProcessResult result = run_with_fault(command, kind, at, log);
    const auto logged = lines_of(fs::exists(log) ? read_text(log) : "0\nnothing");
    SCOPED_TRACE(fmt::format("{} {} of {}: {}; status {}, it said: {}", kind, at, job.name,
                             logged.at(1), result.status, result.err));
    ASSERT_FALSE(result.timed_out);
    if (result.status == 0) {
      ++overcome_;
    } else {
      ++refused_;
      ASSERT_EQ(result.status, 1);
      expect_one_line(result.err, command[0]);
      expect_what_is_there_verifies(out);
      const ProcessResult again = cli().run(job.again(out));
      ASSERT_EQ(again.status, 0) << again.err;
    }
    expect_only_whole(out);
    fs::remove_all(out);
  }

  /// One line of complaint, with a file in it.
  static void expect_one_line(const std::string& err, const std::string& command) {
    Words complaints;
    for (const std::string& line : lines_of(err))
      if (line.starts_with("focus " + command + ": ") ||
          (line.starts_with("run ") && contains(line, ": failed: ")))
        complaints.push_back(line);
    // A comparison continues with its other runs, which may fail likewise.
    const bool goes_on = command == "compare";
    ASSERT_TRUE(complaints.size() == 1 || (goes_on && !complaints.empty())) << err;
    EXPECT_TRUE(contains(complaints[0], fs::path(cli().fresh("x")).parent_path().string()))
        << "no file in: " << complaints[0];
    EXPECT_TRUE(goes_on || lines_of(err).back() == complaints.back()) << err;
  }

  int overcome_ = 0, refused_ = 0;
};

TEST_P(Faults, LoseNothing) {
  int total = 0;
  for (const std::string kind : {"EIO", "ENOSPC", "EDQUOT", "EINTR", "SHORT"}) {
    const int count = calls(GetParam(), kind);
    ASSERT_GT(count, 0) << kind;
    for (const int at : some_of(count, kind + GetParam().name, GetParam().few, GetParam().many)) {
      disturb(kind, at);
      ++total;
      if (HasFatalFailure()) return;
    }
  }
  fmt::print("{}: {} faults, {} ended the command, {} were overcome\n", GetParam().name, total,
             refused_, overcome_);
}

INSTANTIATE_TEST_SUITE_P(Reliability, Faults, testing::ValuesIn(jobs()),
                         [](const auto& test) { return test.param.name; });

// Commands that are killed at random moments (SIGKILL) lose nothing but what they were at: what
// lies there under its final name verifies, the same command ends with the bits of one that was
// never killed, and nothing half-written stays.

class Killed : public Disturbed {};

TEST_P(Killed, LoseNothing) {
  const Job& job = GetParam();
  const int kills = whole_campaign() ? 125 : 3;
  using Seconds = std::chrono::duration<double>;
  const auto start = std::chrono::steady_clock::now();
  cli().must_run(job.command(cli().fresh("timed" + job.ending)));
  Seconds taken = std::chrono::steady_clock::now() - start;
  Rng rng(17);
  int killed = 0;
  for (int i = 0; killed < kills && i < 10 * kills; ++i) {
    const std::string out = cli().fresh("killed" + job.ending);
    // Some are killed again while they make good what the first kill left undone.
    for (int times = 1 + static_cast<int>(rng.below(2)); times > 0; --times) {
      const auto process = cli().start(job.again(out));
      std::this_thread::sleep_for(rng.uniform() * taken);
      process->send(SIGKILL);
      const bool came_in_time = process->wait(kRunSeconds).status == -SIGKILL;
      killed += came_in_time;
      if (!came_in_time) taken *= 0.8;  // the machine is less busy than when it was timed
      expect_what_is_there_verifies(out);
    }
    ProcessResult again;
    // What a comparison had started ends its step and bars the folder until then.
    Process::wait_until(kRunSeconds, [&] {
      again = cli().run(job.again(out));
      return !contains(again.err, "uses this folder");
    });
    ASSERT_EQ(again.status, 0) << "kill " << i << ": " << again.err;
    expect_only_whole(out);
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
