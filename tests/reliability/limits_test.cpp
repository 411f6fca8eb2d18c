#include <unistd.h>

#include "tests/reliability/jobs.h"

// Too little memory, too few descriptors, odd paths, no home, another one at the same place: a
// command works, or ends with one line that says why; never by a signal.
namespace focus {
namespace {

ProcessResult run_limited(const std::string& limit, const Words& command) {
  return run_by(limited(limit), command);
}

/// A model for which the program needs about 350 MB of address space, 70 of them for its libraries.
Words large(const std::string& out) {
  return cli().scratch(
      words("model.hidden_size=256 model.num_hidden_layers=4 data.batch=16 steps=1 "
            "model.initializer_range=0.02 out={}",
            out));
}

Words eval_large(const std::string&) {
  static const std::string run = [] {
    std::string out = cli().fresh("large");
    cli().must_run(large(out));
    return out;
  }();
  return words("eval {}/model.h5 --text {valid}", run);
}

/// The last line must say what is wrong, and there must be one.
void expect_worked_or_said_why(const ProcessResult& result, const std::string& command) {
  ASSERT_FALSE(result.timed_out);
  ASSERT_GE(result.status, 0) << "ended by signal " << -result.status << ": " << result.err;
  if (result.status == 0) return;
  ASSERT_FALSE(lines_of(result.err).empty());
  const std::string line = lines_of(result.err).back();
  // A comparison's last line may be that a run of its failed, and why.
  EXPECT_TRUE(line.starts_with("focus " + command + ": ") || contains(line, "libgomp: ") ||
              contains(line, ": failed: focus train: ") ||
              contains(line, "error while loading shared libraries") ||
              contains(line, "cannot allocate TLS data structures"))
      << result.err;
}

/// A limit of memory: its name, and what a shell says to have it.
struct Limit {
  std::string name;
  std::function<std::string(int megabytes)> set;
};

/// At points between too little and enough, where one of them must be and the other too.
void expect_limits_kept(const Limit& limit, int least, int most, const std::string& command,
                        const Job::Command& words) {
  int worked = 0, refused = 0;
  const int points = whole_campaign() ? 20 : 3;
  for (int i = 0; i <= points; ++i) {
    const int megabytes = least + (most - least) * i / points;
    SCOPED_TRACE(fmt::format("focus {} with {} of {} MB", command, limit.name, megabytes));
    const std::string out = cli().fresh("limited");
    const ProcessResult result = run_limited(limit.set(megabytes), words(out));
    expect_worked_or_said_why(result, command);
    ++(result.status == 0 ? worked : refused);
    if (result.status != 0) {
      EXPECT_FALSE(fs::exists(out + "/model.h5"));
    }
  }
  EXPECT_GT(worked, 0);
  EXPECT_GT(refused, 0);
  fmt::print("focus {}: {} limits of {}, {} too small\n", command, worked + refused, limit.name,
             refused);
}

/// `kind` is ulimit's: v is all of the address space, d what of it is a process's own.
Limit ulimit_of(const std::string& kind) {
  return {"ulimit -" + kind,
          [=](int megabytes) { return fmt::format("ulimit -{} {}", kind, megabytes * 1024); }};
}

TEST(Limits, OfMemory) {
  if (kSanitized) GTEST_SKIP() << "no limit can be kept with sanitizers";
  expect_limits_kept(ulimit_of("v"), 60, 500, "train", large);
  expect_limits_kept(ulimit_of("d"), 2, 400, "train", large);
  expect_limits_kept(ulimit_of("v"), 60, 300, "eval", eval_large);
  expect_limits_kept(ulimit_of("d"), 2, 100, "eval", eval_large);
}

/// One command under limits of memory, in kilobytes.
class LimitSearch {
 public:
  LimitSearch(std::string kind, Job::Command command)
      : kind_(std::move(kind)), command_(std::move(command)) {}

  /// Halves what lies between two limits until every change of what the command does is found to
  /// 50 kB; in the long campaign each step of 50 kB near a change is tried too.
  void run(int least, int most) {
    halve(least, most);
    for (const int change : changes_) {
      if (!whole_campaign()) continue;
      for (int near = change - 20 * kStep; near <= change + 20 * kStep; near += kStep)
        if (near >= least) outcome(near);
    }
    EXPECT_NE(outcome(least), "");
    EXPECT_EQ(outcome(most), "");
  }
  std::size_t tried() const { return outcomes_.size(); }
  std::size_t changes() const { return changes_.size(); }

 private:
  static constexpr int kStep = 50;

  void halve(int least, int most) {
    if (outcome(least) == outcome(most)) return;
    if (most - least <= kStep) {
      changes_.push_back(most);
      return;
    }
    const int middle = (least + most) / 2;
    if (whole_campaign()) {
      halve(least, middle);
      return halve(middle, most);
    }
    // The last change: from too little to enough.
    outcome(middle).empty() ? halve(least, middle) : halve(middle, most);
  }

  /// "" where it worked, else what it said, without numbers and names.
  const std::string& outcome(int kilobytes) {
    if (const auto found = outcomes_.find(kilobytes); found != outcomes_.end())
      return found->second;
    SCOPED_TRACE(fmt::format("ulimit -{} {}", kind_, kilobytes));
    const std::string out = cli().fresh("limited");
    const Words words = command_(out);
    const ProcessResult result = run_limited(fmt::format("ulimit -{} {}", kind_, kilobytes), words);
    expect_worked_or_said_why(result, words[0]);
    std::error_code none;
    for (const auto& entry : fs::recursive_directory_iterator(out, none))
      if (entry.path().extension() == ".h5") StoreReader(entry.path()).verify();
    std::string& what = outcomes_[kilobytes];
    if (result.status == 0) return what;
    const auto lines = lines_of(result.err);
    const std::string said = lines.empty() ? "" : lines.back();
    return what = "refused: " + said.substr(0, said.find_first_of("0123456789/"));
  }

  std::string kind_;
  Job::Command command_;
  std::map<int, std::string> outcomes_;
  std::vector<int> changes_;
};

/// The least addresses, in kilobytes, with which the program starts: with fewer some library ends
/// it before main().
int addresses_to_start() {
  int too_few = 10'000, enough = 600'000;
  while (enough - too_few > 50) {
    const int middle = (too_few + enough) / 2;
    const ProcessResult result = run_limited(fmt::format("ulimit -v {}", middle), {"--version"});
    (result.status == 0 ? enough : too_few) = middle;
  }
  return enough;
}

TEST(Limits, OfMemoryWhereACommandJustWorks) {
  if (kSanitized) GTEST_SKIP() << "no limit can be kept with sanitizers";
  const auto search = [](const std::string& name, const Job::Command& command, int most) {
    for (const std::string kind : {"d", "v"}) {
      if (kind == "v" && !whole_campaign()) continue;
      SCOPED_TRACE(name);
      LimitSearch limits(kind, command);
      kind == "v" ? limits.run(addresses_to_start(), 600'000) : limits.run(500, most);
      fmt::print("{}: {} limits by ulimit -{}, {} changes\n", name, limits.tried(), kind,
                 limits.changes());
    }
  };
  const auto twice = [](const std::string& out) {
    return large(out) + "steps=2 checkpoint_every=1";
  };
  search("large", twice, 400'000);
  if (!whole_campaign()) return;
  for (const Job& job : jobs()) {
    const auto command = [&](const std::string& out) { return job.command(out + job.ending); };
    search(job.name, command, 300'000);
  }
}

/// A control group of the kernel's for memory; not there where nobody may make one.
class MemoryGroup {
 public:
  MemoryGroup() {
    const std::string name = fmt::format("focus-test-{}", getpid());
    for (const auto& [root, limit] : {std::pair{"/sys/fs/cgroup/memory/", "memory.limit_in_bytes"},
                                      {"/sys/fs/cgroup/", "memory.max"}}) {
      std::error_code none;
      fs::create_directory(root + name, none);
      folder_ = root + name;
      limit_ = limit;
      if (exists()) return;
      fs::remove(folder_, none);
    }
  }
  ~MemoryGroup() {
    std::error_code none;
    fs::remove(folder_, none);
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  bool exists() const { return access((folder_ / limit_).c_str(), W_OK) == 0; }
  Limit limit() const {
    return {"a control group", [this](int megabytes) {
              return fmt::format("echo {0}M >{1}/{2}; echo $$ >{1}/cgroup.procs", megabytes,
                                 folder_.string(), limit_);
            }};
  }

 private:
  fs::path folder_;
  std::string limit_;
};

TEST(Limits, OfMemoryInAControlGroup) {
  if (kSanitized) GTEST_SKIP() << "no limit can be kept with sanitizers";
  const MemoryGroup group;
  if (!group.exists()) GTEST_SKIP() << "nobody here may make a control group for memory";
  expect_limits_kept(group.limit(), 4, 300, "train", large);
  expect_limits_kept(group.limit(), 4, 120, "eval", eval_large);
}

TEST(Limits, OfDescriptors) {
  if (kSanitized) GTEST_SKIP() << "no limit can be kept with sanitizers";
  int refused = 0;
  for (int descriptors = 4; descriptors <= 12; ++descriptors) {
    SCOPED_TRACE(fmt::format("{} descriptors", descriptors));
    const ProcessResult result = run_limited(fmt::format("ulimit -n {}", descriptors),
                                             cli().retrofit({"out=" + cli().fresh("limited")}));
    expect_worked_or_said_why(result, "train");
    refused += result.status != 0;
  }
  EXPECT_GT(refused, 0);
}

TEST(Limits, PathsWithSpacesLineBreaksAndOtherLetters) {
  for (const std::string name :
       {"with a space", "line\nbreak", "K\xc3\xb6nigsberg \xe6\xbc\xa2", "-dash"}) {
    SCOPED_TRACE(name);
    const std::string parent = cli().fresh("odd"), out = parent + "/" + name;
    fs::create_directory(parent);
    cli().must_run(cli().retrofit({"out=" + out, "steps=2"}));
    cli().must_run({"info", out + "/focus.h5"});
    cli().must_run(words("export {base} --adapter {}/focus.h5 --out {}/folder", out, out));
    cli().must_run({"import", out + "/folder", "--out", out + "/again.h5"});
  }
}

TEST(Limits, WithoutAHome) {
  must_run_by({"/usr/bin/env", "-u", "HOME", "-u", "XDG_CACHE_HOME"},
              cli().retrofit({"out=" + cli().fresh("homeless")}));
}

TEST(TwoAtOnce, InOneFolderOneTrainsAndTheOtherNamesIt) {
  const std::string out = cli().fresh("both"), alone = cli().fresh("alone");
  const Words command = cli().retrofit({"steps=60"});
  cli().must_run(command + Words{"out=" + alone});
  const auto first = cli().start(command + Words{"out=" + out}),
             second = cli().start(command + Words{"out=" + out});
  const ProcessResult a = first->wait(kRunSeconds), b = second->wait(kRunSeconds);
  EXPECT_EQ((a.status == 0) + (b.status == 0), 1) << a.err << b.err;
  const std::string& said = a.status == 0 ? b.err : a.err;
  EXPECT_TRUE(contains(lines_of(said).back(), out)) << said;
  expect_same_run(out, alone);
}

TEST(TwoAtOnce, ImportsWithOneNameLeaveOneWholeStore) {
  const std::string folder = made_once("folder", "export {base}"), out = cli().fresh("both.h5");
  for (int i = 0; i < (whole_campaign() ? 50 : 3); ++i) {
    const Words command = {"import", folder, "--out", out, "--overwrite"};
    const auto first = cli().start(command), second = cli().start(command);
    EXPECT_EQ(first->wait(kRunSeconds).status, 0);
    EXPECT_EQ(second->wait(kRunSeconds).status, 0);
    StoreReader(out).verify();
    for (const auto& entry : fs::directory_iterator(fs::path(out).parent_path()))
      EXPECT_FALSE(contains(entry.path().string(), "both.h5.focus-tmp-")) << entry.path();
  }
}

/// The adapter that is exported is written again meanwhile.
TEST(TwoAtOnce, ATrainerAndAnExporterOfWhatItWrites) {
  const auto training = [](const std::string& out, int steps) {
    return cli().retrofit({"out=" + out, fmt::format("steps={}", steps), "checkpoint_every=2"});
  };
  const std::string shorter = cli().fresh("shorter"), longer = cli().fresh("longer");
  cli().must_run(training(shorter, 4));
  cli().must_run(training(longer, 8));
  const auto exported = [](const std::string& run) {
    const std::string out = cli().fresh("exported");
    cli().must_run(words("export {base} --adapter {}/focus.h5 --out {}", run, out));
    return snapshot(out);
  };
  const auto before = exported(shorter), after = exported(longer);
  ASSERT_NE(before, after);
  for (int i = 0; i < (whole_campaign() ? 50 : 3); ++i) {
    const std::string out = cli().fresh("both");
    cli().must_run(training(out, 4));
    const auto trainer = cli().start(training(out, 8) + Words{"--overwrite"});
    for (bool ended = false; !ended;) {
      ended = trainer->ended();  // the last export is of what the trainer has left
      const auto files = exported(out);
      EXPECT_TRUE(files == after || (!ended && files == before));
    }
    const ProcessResult trained = trainer->wait(kRunSeconds);
    ASSERT_EQ(trained.status, 0) << trained.err;
    expect_same_run(out, longer);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace focus
