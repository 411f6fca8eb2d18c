#include <fstream>
#include <set>

#include "tests/reliability/campaign.h"

// A long run takes no more memory and holds no more files open at its end than at its beginning,
// keeps the requested number of checkpoints, and gives the same bits however often it is stopped
// and resumed.
namespace focus {
namespace {

struct Footprint {
  long resident_kb = 0;
  std::size_t open_files = 0;
};

Footprint footprint_of(pid_t pid) {
  const std::string process = fmt::format("/proc/{}", pid);
  Footprint now;
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) now.resident_kb = std::stol(line.substr(6));
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(process + "/fd", gone)) {
    static_cast<void>(entry);
    ++now.open_files;
  }
  return now;
}

Words long_run(const std::string& out, int steps) {
  return cli().retrofit({"out=" + out, fmt::format("steps={}", steps), "data.batch=1",
                         fmt::format("log_every={}", std::max(1, steps / 1000)),
                         fmt::format("eval_every={}", steps / 20),
                         fmt::format("checkpoint_every={}", steps / 20), "checkpoint_keep=3",
                         "optim.lr=0.001"});
}

TEST(LongRun, StaysFlatAndGivesTheSameBitsHoweverOftenItIsStopped) {
  const int steps = whole_campaign() ? 20'000 : 400;
  const std::string out = cli().fresh("whole"), broken = cli().fresh("broken");
  std::vector<Footprint> seen;
  {
    const auto process = cli().start(long_run(out, steps));
    Process::wait_until(3600, [&] {
      if (const Footprint now = footprint_of(process->pid()); now.resident_kb > 0)
        seen.push_back(now);
      return process->ended();
    });
    const ProcessResult result = process->wait(kRunSeconds);
    ASSERT_EQ(result.status, 0) << result.err;
  }
  ASSERT_GE(seen.size(), 20u);
  const auto most = [&](std::size_t begin, std::size_t end) {
    Footprint at_most;
    for (std::size_t i = begin; i < end; ++i) {
      at_most.resident_kb = std::max(at_most.resident_kb, seen[i].resident_kb);
      at_most.open_files = std::max(at_most.open_files, seen[i].open_files);
    }
    return at_most;
  };
  // The first tenths hold the first step, validation and checkpoint.
  const Footprint early = most(0, seen.size() * 3 / 10),
                  late = most(seen.size() * 3 / 10, seen.size());
  if (!kSanitized) {  // they keep what was given back, to find who uses it
    EXPECT_LE(late.resident_kb, early.resident_kb + 2048);
  }
  EXPECT_LE(late.open_files, early.open_files);

  // Speeds are only printed: other work on the machine would decide.
  std::vector<double> speeds;
  for (const auto& record : read_metrics(out + "/metrics.jsonl"))
    if (record.contains("tokens_per_second")) speeds.push_back(record["tokens_per_second"]);
  const auto median = [&](std::size_t begin, std::size_t end) {
    std::vector<double> some(speeds.begin() + static_cast<std::ptrdiff_t>(begin),
                             speeds.begin() + static_cast<std::ptrdiff_t>(end));
    std::ranges::sort(some);
    return some.at(some.size() / 2);
  };
  fmt::print("{:.0f} tokens/s in the first tenth, {:.0f} in the last\n",
             median(0, speeds.size() / 10), median(speeds.size() * 9 / 10, speeds.size()));

  std::size_t checkpoints = 0;
  for (const auto& [name, checksum] : snapshot(out + "/checkpoints"))
    checkpoints += name.ends_with(".h5");
  EXPECT_EQ(checkpoints, 3u);

  Rng rng(11);
  std::set<int> stops;
  while (stops.size() < (whole_campaign() ? 10 : 3))
    stops.insert(1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(steps - 1))));
  const auto go = [&](const Words& more) {
    const ProcessResult part =
        cli().start(long_run(broken, steps) + Words{"--resume"} + more)->wait(3600);
    ASSERT_EQ(part.status, 0) << part.err;
  };
  for (const int stop : stops) go({"--stop-at", std::to_string(stop)});
  go({});
  expect_same_run(broken, out);
  fmt::print("{} steps: {} kB early, {} kB late; {} and {} files open; stopped {} times\n", steps,
             early.resident_kb, late.resident_kb, early.open_files, late.open_files, stops.size());
}

}  // namespace
}  // namespace focus
