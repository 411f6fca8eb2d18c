// Where a command runs: in a folder that nobody may write to, beside a /tmp that is full, in a
// language whose numbers have a comma.
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/reliability/jobs.h"
#include "tests/support/launcher.h"

namespace focus {
namespace {

/// A shell that mounts what `script` says, seen by itself alone, and then becomes the command.
Words with_mounts(const std::string& script) {
  return {"/usr/bin/unshare", "-m", "/bin/sh", "-e", "-c", script + "\nexec \"$@\"", "sh"};
}

/// An empty folder that nobody may write to.
Words with_read_only(const std::string& folder) {
  fs::create_directory(folder);
  return with_mounts("mount -t tmpfs -o ro tmpfs '" + folder + "'");
}

bool may_mount() {
  static const bool may = [] {
    const std::string there = cli().fresh("mounted");
    fs::create_directory(there);
    Words words = with_mounts("mount -t tmpfs -o size=64k tmpfs '" + there + "'");
    words.emplace_back("/bin/true");
    return access(words[0].c_str(), X_OK) == 0 && Process(words, {}).wait(kRunSeconds).status == 0;
  }();
  return may;
}
#define SKIP_WITHOUT_MOUNTS() \
  if (!may_mount()) GTEST_SKIP() << "nobody here may mount a file system"

class Surroundings : public Disturbed {};

TEST_P(Surroundings, MayForbidToWrite) {
  SKIP_WITHOUT_MOUNTS();
  const Job& job = GetParam();
  static_cast<void>(whole());  // with it, what the command reads
  const std::string parent = cli().fresh("read_only"), out = parent + "/out" + job.ending;
  const Words command = job.command(out);
  const ProcessResult result = run_by(with_read_only(parent), command);
  EXPECT_EQ(result.status, 1) << result.err;
  ASSERT_FALSE(lines_of(result.err).empty());
  const std::string line = lines_of(result.err).back();
  EXPECT_TRUE(line.starts_with("focus " + command[0])) << result.err;
  EXPECT_TRUE(contains(line, parent) && contains(line, "Read-only file system")) << result.err;
  EXPECT_TRUE(fs::is_empty(parent));
}

TEST_P(Surroundings, MayHaveAFullTmp) {
  SKIP_WITHOUT_MOUNTS();
  const Job& job = GetParam();
  static_cast<void>(whole());
  const std::string out = cli().fresh("out" + job.ending),
                    folder = fs::path(out).parent_path().string();
  // Our own folder and the program's, which may lie in /tmp, are put back into the full one.
  const Words full = with_mounts(fmt::format(R"(exec 8<'{0}' 9<'{1}'
mount -t tmpfs -o size=16k tmpfs /tmp
mkdir -p '{0}' '{1}'
mount -c --bind /proc/self/fd/8 '{0}'
mount -c --bind /proc/self/fd/9 '{1}'
exec 8<&- 9<&-
export TMPDIR=/tmp
head -c 100000 /dev/zero >/tmp/filler 2>/dev/null && exit 3)",
                                             folder, FOCUS_BINARY_DIR));
  must_run_by(full, job.command(out));
  expect_only_whole(out);
}

TEST_P(Surroundings, MayWriteADecimalComma) {
  static const std::string languages = [] {
    std::string folder = cli().fresh("languages");
    fs::create_directory(folder);
    Process({"/usr/bin/localedef", "-i", "de_DE", "-f", "UTF-8", folder + "/de_DE.UTF-8"}, {})
        .wait(kRunSeconds);
    return folder;
  }();
  if (fs::is_empty(languages)) GTEST_SKIP() << "no German numbers here (package locales)";
  const Words german = {"/usr/bin/env", "LOCPATH=" + languages, "LC_ALL=de_DE.UTF-8"};
  ASSERT_EQ(Process(german + Words{"/usr/bin/printf", "%.1f", "2,5"}, {}).wait(kRunSeconds).out,
            "2,5");
  const Job& job = GetParam();
  const std::string out = cli().fresh("german" + job.ending);
  must_run_by(german, job.command(out));
  expect_whole(out);
}

INSTANTIATE_TEST_SUITE_P(Reliability, Surroundings, testing::ValuesIn(jobs()),
                         [](const auto& test) { return test.param.name; });

TEST(Cache, OfTokensThatMayNotBeWrittenIsNamed) {
  SKIP_WITHOUT_MOUNTS();
  const std::string cache = cli().fresh("read_only"), out = cli().fresh("out");
  const ProcessResult result =
      run_by(with_read_only(cache), train(out) + Words{"data.cache_dir=" + cache + "/new"});
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(contains(lines_of(result.err).back(), cache + "/new")) << result.err;
}

// What the machine and its other processes do to a run without meaning it: a clock that jumps,
// neighbours that take the processors, one of several processes that is killed.

void must_run_and_jump(const Words& command, int at, long by) {
  must_run_by({}, command,
              {{"LD_PRELOAD", FOCUS_CLOCK_LIBRARY},
               {"FOCUS_CLOCK_AT", std::to_string(at)},
               {"FOCUS_CLOCK_BY", std::to_string(by)}});
}

constexpr long kHour = 3600, kYear = 365 * 24 * kHour;

class Clock : public Disturbed {};

TEST_P(Clock, MayJump) {
  const Job& job = GetParam();
  const std::vector<int> looks =
      whole_campaign() ? std::vector<int>{1, 2, 3, 5, 10, 20, 50, 100} : std::vector<int>{1, 3};
  for (const long by : {-kHour, kYear})
    for (const int at : looks) {
      SCOPED_TRACE(fmt::format("{}: by {} s at look {}", job.name, by, at));
      const std::string out = cli().fresh("jumped" + job.ending);
      must_run_and_jump(job.command(out), at, by);
      expect_only_whole(out);
      // What is there is of another time now.
      must_run_and_jump(job.again(out), at, -by);
      expect_whole(out);
      fs::remove_all(out);
    }
}

INSTANTIATE_TEST_SUITE_P(Reliability, Clock, testing::ValuesIn(jobs()),
                         [](const auto& test) { return test.param.name; });

TEST(ClockOfRuns, MayJumpBetweenTheCheckpointAndItsResumption) {
  const std::string alone = cli().fresh("alone");
  cli().must_run(train(alone));
  for (const long by : {-kHour, kYear}) {
    const std::string out = cli().fresh("jumped");
    cli().must_run(train(out) + "--stop-at 2");
    must_run_and_jump(train(out) + "--resume", 1, by);
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
        Words{"/usr/bin/nice", "-n", "5", "/bin/sh", "-c", "while :; do :; done"}, Environment{}));
  for (int i = 0; i < (whole_campaign() ? 20 : 1); ++i) {
    const std::string out = cli().fresh("crowded");
    cli().must_run(command(out));
    expect_same_run(out, alone);
  }
}

/// Three processes, one of which is killed again and again; two take the run up. `whole` is what is
/// left in the end.
void expect_kills_lose_nothing(const Words& command, const std::string& whole, double seconds) {
  constexpr int kRanks = 3;
  const int kills = whole_campaign() ? 50 : 1;
  const auto into = [&](const std::string& out) { return command + Words{"out=" + out}; };
  Rng rng(29);
  int killed = 0;
  for (int i = 0; killed < kills && i < 5 * kills; ++i) {
    const std::string out = cli().fresh("killed");
    const auto run = start_together(kRanks, into(out) + Words{"--resume"});
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
    // Before its first checkpoint a run has no parts yet: as many as before begin it.
    must_run_together(fs::exists(fs::path(out) / "checkpoints/latest") ? 2 : kRanks,
                      into(out) + Words{"--resume"});
    expect_same_run(out, whole);
    expect_no_half_files(out);
    if (testing::Test::HasFailure()) return;
    fs::remove_all(out);
  }
  EXPECT_GE(killed, kills) << "too few came in time";
  fmt::print("{} kills of one of {} processes\n", killed, kRanks);
}

/// A run whose windows are parts already, and one whose batch the processes divide.
TEST(Ranks, KilledAtRandomLoseNothing) {
  SKIP_WITHOUT_LAUNCHER();
  const Words run = {"steps=12", "checkpoint_every=1", "eval_windows=1", "eval_every=4"};
  for (const Words& windows :
       {Words{"data.batch=1", "data.gradient_accumulation_steps=3"}, Words{"data.batch=3"}}) {
    const Words command = cli().retrofit(run + windows);
    const std::string together = cli().fresh("together");
    const auto start = std::chrono::steady_clock::now();
    must_run_together(3, command + Words{"out=" + together});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    SCOPED_TRACE(windows[0]);
    if (windows.size() > 1) {
      const std::string alone = cli().fresh("alone");
      cli().must_run(command + Words{"out=" + alone});
      expect_same_run(together, alone);
    }
    expect_kills_lose_nothing(command, together, taken.count());
  }
}

}  // namespace
}  // namespace focus
