#include <csignal>

#include "tests/support/launcher.h"

// Several processes that share a comparison come to the table of one process.
namespace focus {
namespace {

/// Three runs with two seeds, two names for one of them, and one that cannot be.
std::string shared_config() {
  const std::string path = cli().fresh("compare.yaml");
  write_text(path, fmt::format(R"(seeds: [1, 2]
common:
  steps: 6
  data: {{train: [{0}], valid: [{1}], context: 64, batch: 2}}
  focus: {{num_groups: 3, local_window: 8, tokens: {{routing_dim: 8}}}}
  model: {{hidden_size: 32, num_hidden_layers: 2}}
  log_every: 1
  eval_windows: 2
  checkpoint_every: 1
runs:
  - {{name: dense, method: scratch, tokenizer: bytes}}
  - {{name: retrofit, base: {2}}}
  - {{name: the same retrofit, base: {2}}}
  - {{name: lora, base: {2}, method: lora}}
  - {{name: no base, base: {3}, seeds: [1]}}
eval: {{valid: [{1}], context: 64, stride: 32, attentions: [dense, soft]}}
)",
                               cli().train_text(), cli().valid_text(), cli().base(),
                               cli().fresh("none.h5")));
  return path;
}

/// The rows of a comparison without what depends on the clock and the machine.
std::vector<nlohmann::ordered_json> rows_without_rates(const fs::path& out) {
  std::vector<nlohmann::ordered_json> rows;
  for (const std::string& line : lines_of(read_text(out / "compare.jsonl"))) {
    rows.push_back(nlohmann::ordered_json::parse(line));
    for (const char* key : {"train_tokens_per_second", "tokens_per_second", "train_peak_bytes"}) {
      const bool is_there = rows.back().erase(key) > 0;
      EXPECT_TRUE(is_there || rows.back().contains("questions") ||
                  rows.back().at("error").is_string())
          << line;
    }
  }
  return rows;
}

void expect_same_comparison(const fs::path& actual, const fs::path& expected) {
  EXPECT_EQ(rows_without_rates(actual), rows_without_rates(expected));
  EXPECT_EQ(files_in(actual / "runs"), files_in(expected / "runs"));
  for (const auto& run : fs::directory_iterator(expected / "runs"))
    expect_same_run(actual / "runs" / run.path().filename(), run.path());
  EXPECT_TRUE(fs::exists(actual / "compare.html"));
  EXPECT_FALSE(fs::exists(actual / "compare.taken"));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SharedComparison, AnyNumberOfProcessesComesToTheTableOfOne) {
  SKIP_WITHOUT_LAUNCHER();
  const std::string config = shared_config(), alone = cli().fresh("alone");
  EXPECT_EQ(cli().run({"compare", config, "out=" + alone}).status, 1) << "one run cannot be";
  ASSERT_EQ(rows_without_rates(alone).size(), 2U * (1 + 2 + 2 + 1) + 1);
  for (const int count : {2, 3}) {
    SCOPED_TRACE(fmt::format("{} processes", count));
    const std::string out = cli().fresh("together");
    const ProcessResult result = run_together(count, {"compare", config, "out=" + out});
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_EQ(count_of(result.out, out + "/compare.html"), 1U) << result.out;
    EXPECT_EQ(count_of(result.err, "no base, seed 1: failed: "), 1U) << result.err;
    EXPECT_EQ(count_of(result.err, ": training\n"), 6U) << result.err;
    expect_same_comparison(out, alone);
    // Nothing is done again, by however many.
    const ProcessResult again = run_together(2, {"compare", config, "out=" + out});
    EXPECT_EQ(count_of(again.err, ": done before"), 8U) << again.err;
    EXPECT_EQ(again.out, result.out);
  }
}

TEST(SharedComparison, OneThatIsKilledEndsAllAndTheSameCommandGoesOn) {
  SKIP_WITHOUT_LAUNCHER();
  const std::string config = shared_config(), alone = cli().fresh("alone"),
                    out = cli().fresh("killed");
  const auto command = [&](const std::string& where) {
    return Words{"compare", config, "out=" + where, "steps=300", "checkpoint_every=20"};
  };
  const auto together = start_together(3, command(out));
  ASSERT_TRUE(Process::wait_until(kRunSeconds, [&] {
    std::size_t begun = 0;
    if (fs::is_directory(fs::path(out) / "runs"))
      for (const auto& run : fs::directory_iterator(fs::path(out) / "runs"))
        if (fs::exists(run.path() / "metrics.jsonl")) ++begun;
    return begun == 3;
  }));
  ASSERT_NO_FATAL_FAILURE(kill_rank_1(*together, "out=" + out));
  EXPECT_FALSE(fs::exists(fs::path(out) / "compare.html"));
  // The runs that are left write their checkpoints and end; until then the folder is theirs.
  ProcessResult second;
  ASSERT_TRUE(Process::wait_until(kRunSeconds, [&] {
    second = run_together(2, command(out));
    return !contains(second.err, "uses this folder");
  }));
  EXPECT_EQ(count_of(second.out, out + "/compare.html"), 1U) << second.err;
  cli().run(command(alone));
  expect_same_comparison(out, alone);
}

}  // namespace
}  // namespace focus
