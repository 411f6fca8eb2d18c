#include <fstream>
#include <set>

#include "tests/support/cli.h"

namespace focus {
namespace {

/// A comparison of three runs with two seeds on the tests' text: from scratch dense and with Focus,
/// and a retrofit. `more` are lines of further runs.
std::string three_runs(const std::string& more = "") {
  const Cli& cli = Cli::instance();
  const std::string path = cli.fresh("compare.yaml");
  write_text(path, fmt::format(R"(seeds: [1, 2]
common:
  steps: 6
  data: {{train: [{0}], valid: [{1}], context: 64, batch: 2}}
  model: {{hidden_size: 32, num_hidden_layers: 2}}
  focus: {{num_groups: 3, local_window: 8, tokens: {{routing_dim: 8}}}}
  log_every: 1
  eval_windows: 2
runs:
{3}  - {{name: full attention, method: scratch, tokenizer: bytes}}
  - {{name: Focus <scratch>, method: scratch, tokenizer: bytes, attention: focus}}
  - {{name: retrofit, base: {2}}}
eval: {{valid: [{1}], test: [{0}], context: 64, stride: 32,
       attentions: [dense, local, "focus:1", trained]}}
)",
                               cli.train_text(), cli.valid_text(), cli.base(), more));
  return path;
}

/// Every tag that is opened is closed in order.
void expect_well_formed(const std::string& html) {
  static const Words kEmpty = {"meta", "!DOCTYPE"};
  Words open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const bool closes = html[at + 1] == '/';
    const std::size_t start = at + (closes ? 2 : 1);
    const std::string name = html.substr(start, html.find_first_of(" >/\n", start) - start);
    if (html[end - 1] == '/' || std::ranges::find(kEmpty, name) != kEmpty.end()) continue;
    if (!closes) {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << name;
    EXPECT_EQ(open.back(), name);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

TEST(CliCompare, TrainsOnceAndWritesEveryForm) {
  const Cli& cli = Cli::instance();
  const std::string path = three_runs(), out = cli.fresh("compare");
  const ProcessResult first = cli.must_run({"compare", path, "out=" + out});
  EXPECT_TRUE(contains(first.err, "run 6 of 6: retrofit, seed 2: training")) << first.err;
  EXPECT_TRUE(contains(first.out, "Focus <scratch>")) << first.out;
  const auto rows = compare_rows(out);
  // dense, or dense, local only, soft and hard k=1; two seeds.
  ASSERT_EQ(rows.size(), 2u * (1 + 4 + 4));
  for (const auto& row : rows) {
    EXPECT_EQ(row["split"], "valid");
    EXPECT_EQ(row["context"], 64);
    EXPECT_EQ(row["train_tokens"], 6 * 2 * 64);
    EXPECT_GT(row["trainable_parameters"], 0);
    EXPECT_GT(row["train_tokens_per_second"], 0);
    EXPECT_GT(row["tokens_per_second"], 0);
    EXPECT_GT(row["train_peak_bytes"], 1'000'000);
    EXPECT_GT(row["perplexity"], 1);
  }
  EXPECT_EQ(lines_of(read_text(fs::path(out) / "compare.csv")).size(), rows.size() + 1);
  const std::string html = read_text(fs::path(out) / "compare.html");
  expect_well_formed(html);
  EXPECT_TRUE(contains(html, "Focus &lt;scratch&gt;"));
  EXPECT_FALSE(contains(html, "<script"));

  const auto before = snapshot(fs::path(out) / "runs");
  const ProcessResult again = cli.must_run({"compare", path, "out=" + out});
  EXPECT_TRUE(contains(again.err, "run 6 of 6: retrofit, seed 2: done before")) << again.err;
  EXPECT_FALSE(contains(again.err, "training")) << again.err;
  EXPECT_EQ(again.out, first.out);
  EXPECT_EQ(snapshot(fs::path(out) / "runs"), before);

  // How often a run reports makes no other run, other text does.
  cli.must_run({"compare", path, "out=" + out, "seeds=1", "log_every=2"});
  EXPECT_EQ(files_in(fs::path(out) / "runs"), 6u);
  cli.must_run({"compare", path, "out=" + out, "seeds=1", "data.valid=" + cli.train_text()});
  EXPECT_EQ(files_in(fs::path(out) / "runs"), 9u);
}

TEST(CliCompare, TheFiguresAreThoseOfTrainAndEval) {
  const Cli& cli = Cli::instance();
  const std::string path = three_runs(), out = cli.fresh("compare"), alone = cli.fresh("alone");
  cli.must_run({"compare", path, "out=" + out, "seeds=2"});
  const auto rows = compare_rows(out);
  const fs::path run = fs::path(out) / "runs" / rows.back()["hash"].get<std::string>();
  cli.must_run({"train", (run / "config.yaml").string(), "out=" + alone});
  expect_same_run(run, alone);
  const auto eval =
      cli.figures({"eval", cli.base(), "--adapter", alone + "/focus.h5", "--text", cli.valid_text(),
                   "--context", "64", "--stride", "32", "--attention", "dense,local,focus:1"});
  ASSERT_EQ(eval["rows"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(rows[rows.size() - 4 + i]["perplexity"], eval["rows"][i]["perplexity"]);

  // Evaluated further after the folder has been moved.
  const std::string moved = cli.fresh("moved");
  fs::rename(out, moved);
  const ProcessResult more =
      cli.must_run({"compare", path, "out=" + moved, "seeds=2", "eval.context=32"});
  EXPECT_FALSE(contains(more.err, "training")) << more.err;
  EXPECT_EQ(compare_rows(moved).back()["hash"], rows.back()["hash"]);
}

TEST(CliCompare, ThePlaneOfTargetAndSource) {
  const Cli& cli = Cli::instance();
  const std::string path = cli.fresh("compare.yaml"), out = cli.fresh("compare");
  write_text(path, fmt::format(R"(common:
  base: {2}
  steps: 6
  data: {{train: [{0}], valid: [{1}], context: 64, batch: 2}}
  focus: {{num_groups: 3, local_window: 8, tokens: {{routing_dim: 8}}}}
  eval_windows: 2
runs:
  - {{name: Focus}}
  - {{name: LoRA, method: lora, sweep: {{optim.lr: [0.001, 0.05]}}}}
eval: {{texts: {{target: [{0}], source: [{1}]}}, test_texts: {{target: [{1}], source: [{1}]}},
       context: 64, stride: 32, attentions: [dense, soft]}}
)",
                               cli.train_text(), cli.valid_text(), cli.base()));
  cli.must_run({"compare", path, "out=" + out});
  std::map<std::string, int> splits;
  for (const auto& row : compare_rows(out)) ++splits[row["split"]];
  EXPECT_EQ(splits, (std::map<std::string, int>{{"source", 4}, {"target", 4}}));
  std::string html = read_text(fs::path(out) / "compare.html");
  expect_well_formed(html);
  for (const char* part : {"Learning and forgetting", "Target texts", "Source texts", "lr=0.05",
                           "Target loss against source loss"})
    EXPECT_TRUE(contains(html, part)) << part;
  const std::string base = html.substr(html.find("<td>base</td>"), 250);
  EXPECT_FALSE(contains(base.substr(0, base.find("</tr>")), "-0.0000")) << base;
  EXPECT_FALSE(contains(html, "test texts"));
  cli.must_run({"compare", path, "out=" + out, "--final"});
  html = read_text(fs::path(out) / "compare.html");
  EXPECT_TRUE(contains(html, "Learning and forgetting, test texts"));
  expect_refused({"compare", path, "out=" + out, "--final", "eval.test_texts.target=[]",
                  "eval.test_texts.source=[]"},
                 {"--final"});
}

TEST(CliCompare, RowsAreThoseThatTheConfigLists) {
  const Cli& cli = Cli::instance();
  const std::string path = three_runs(), out = cli.fresh("compare");
  cli.must_run({"compare", path, "out=" + out, "seeds=1",
                "eval.attentions=hard:2,dense,sparq:8:rank=4,magicpig:4:tables=8"});
  Words names;
  for (const auto& row : compare_rows(out))
    names.push_back(row["run"].get<std::string>() + ": " + row["attention"].get<std::string>());
  const Words rest = {"dense", "sparq k=8 r=4 mean", "magicpig K=4 L=8"};
  Words wanted;
  for (const std::string run : {"full attention: ", "Focus <scratch>: ", "retrofit: "}) {
    if (run != "full attention: ") wanted.push_back(run + "hard k=2 keep");
    for (const std::string& name : rest) wanted.push_back(run + name);
  }
  EXPECT_EQ(names, wanted);
}

TEST(CliCompare, AFailedRunIsListedAndTheOthersGoOn) {
  const Cli& cli = Cli::instance();
  const std::string missing = cli.fresh("none.h5"), out = cli.fresh("compare");
  const std::string path =
      three_runs("  - {name: no base, base: " + missing +
                 "}\n"
                 "  - {name: wild, method: scratch, tokenizer: bytes, optim: {lr: 1e30}}\n");
  const ProcessResult result = cli.run({"compare", path, "out=" + out, "seeds=1"});
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(contains(result.out, "FAILED no base, seed 1: " + missing)) << result.out;
  EXPECT_TRUE(contains(result.out, "FAILED wild, seed 1: focus train: step ")) << result.out;
  const auto rows = compare_rows(out);
  ASSERT_EQ(rows.size(), 2u + 1 + 4 + 4);
  EXPECT_TRUE(contains(rows[0]["error"], missing));
  EXPECT_FALSE(rows[0].contains("perplexity"));
  EXPECT_TRUE(rows.back()["error"].is_null());
  expect_well_formed(read_text(fs::path(out) / "compare.html"));
}

TEST(CliCompare, AStoppedRunGoesOnToTheSameBits) {
  const Cli& cli = Cli::instance();
  const std::string path = three_runs(), out = cli.fresh("stopped"), whole = cli.fresh("whole");
  const Words more = {"seeds=1", "steps=400", "log_every=1"};
  const auto process = cli.start(Words{"compare", path, "out=" + out} + more);
  // Until the first run has logged some steps.
  const auto steps_logged = [&] {
    if (!fs::is_directory(fs::path(out) / "runs")) return false;
    for (const auto& run : fs::directory_iterator(fs::path(out) / "runs")) {
      std::ifstream metrics(run.path() / "metrics.jsonl");
      int lines = 0;
      for (std::string line; std::getline(metrics, line);) ++lines;
      if (lines > 5) return true;
    }
    return false;
  };
  ASSERT_TRUE(Process::wait_until(kRunSeconds, steps_logged));
  process->send(SIGINT);
  const ProcessResult stopped = process->wait(kRunSeconds);
  EXPECT_EQ(stopped.status, 1) << stopped.err;
  EXPECT_TRUE(contains(stopped.err, "stopped after 0 of 3 runs")) << stopped.err;
  EXPECT_FALSE(fs::exists(fs::path(out) / "compare.html"));
  cli.must_run(Words{"compare", path, "out=" + out} + more);
  cli.must_run(Words{"compare", path, "out=" + whole} + more);
  for (const auto& run : fs::directory_iterator(fs::path(whole) / "runs"))
    expect_same_run(fs::path(out) / "runs" / run.path().filename(), run.path());
}

TEST(CliCompare, WhatIsDoneIsInTheTablesWhileTheOthersRun) {
  const Cli& cli = Cli::instance();
  const std::string path = three_runs(), out = cli.fresh("partly");
  const auto process = cli.start({"compare", path, "out=" + out, "seeds=1", "steps=200"});
  const fs::path page = fs::path(out) / "compare.html";
  ASSERT_TRUE(Process::wait_until(kRunSeconds, [&] { return fs::exists(page); }));
  process->send(SIGINT);
  const ProcessResult stopped = process->wait(kRunSeconds);
  if (stopped.status == 0) GTEST_SKIP() << "all runs were done before the signal came";
  const std::string html = read_text(page);
  EXPECT_TRUE(contains(html, " of 3, the others are not finished")) << html.substr(0, 3000);
  expect_well_formed(html);
  std::set<std::string> runs;
  for (const nlohmann::json& row : compare_rows(out)) runs.insert(row.at("run").get<std::string>());
  EXPECT_GE(runs.size(), 1u);
  EXPECT_LT(runs.size(), 3u);
  cli.must_run({"compare", path, "out=" + out, "seeds=1", "steps=200"});
  EXPECT_FALSE(contains(read_text(page), "are not finished"));
}

/// The only run that a folder holds.
fs::path only_run(const fs::path& out) {
  EXPECT_EQ(files_in(out / "runs"), 1u);
  return fs::directory_iterator(out / "runs")->path();
}

TEST(CliCompare, AValueThatIsTheDefaultsMakesNoOtherRun) {
  const Cli& cli = Cli::instance();
  const std::string path = cli.fresh("one.yaml"), out = cli.fresh("compare");
  write_text(path,
             fmt::format("common: {{steps: 3, data: {{train: [{0}], valid: [{0}], context: 64}}}}\n"
                         "runs: [{{name: only, method: scratch, tokenizer: bytes, "
                         "model: {{hidden_size: 32}}}}]\n"
                         "eval: {{valid: [{0}], context: 64}}\n",
                         cli.train_text()));
  const Words compare = {"compare", path, "out=" + out};
  cli.must_run(compare);
  const fs::path run = only_run(out);
  const auto before = snapshot(run);
  EXPECT_TRUE(contains(cli.must_run(compare).err, "only, seed 1: done before"));
  EXPECT_TRUE(contains(cli.must_run(compare + Words{"optim.clip_norm=1"}).err, "done before"));
  EXPECT_EQ(snapshot(only_run(out)), before);
}

TEST(CliCompare, TwoInOneFolderTheSecondStopsAndAKilledOneBarsNobody) {
  const Cli& cli = Cli::instance();
  const std::string path = three_runs(), out = cli.fresh("compare");
  const Words compare = {"compare", path, "out=" + out, "seeds=1"};
  const auto first = cli.start(compare + Words{"steps=1000000"});
  const auto holder = [&] {
    const fs::path lock = fs::path(out) / "compare.lock";
    return fs::exists(lock) ? read_text(lock) : std::string();
  };
  const auto is_training = [&] {
    return fs::is_directory(fs::path(out) / "runs") && files_in(fs::path(out) / "runs") == 1 &&
           fs::exists(only_run(out) / "metrics.jsonl");
  };
  ASSERT_TRUE(Process::wait_until(kRunSeconds, is_training));
  expect_refused(compare, {out, "process " + holder(), "out="});
  first->send(SIGKILL);
  first->wait(kRunSeconds);
  // The run that is left writes its checkpoint and ends.
  ProcessResult second;
  ASSERT_TRUE(Process::wait_until(kRunSeconds, [&] {
    second = cli.run(compare);
    return second.status == 0 || !contains(second.err, "uses this folder");
  }));
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(files_in(fs::path(out) / "runs"), 4u);
}

TEST(CliCompare, TestTextsWithFinalAlone) {
  const Cli& cli = Cli::instance();
  const std::string path = three_runs(), out = cli.fresh("compare");
  cli.must_run({"compare", path, "out=" + out, "seeds=1"});
  for (const auto& row : compare_rows(out)) EXPECT_EQ(row["split"], "valid");
  cli.must_run({"compare", path, "out=" + out, "seeds=1", "--final"});
  const auto rows = compare_rows(out);
  EXPECT_EQ(std::ranges::count(rows, "test", [](const auto& r) { return r["split"]; }), 9);
  EXPECT_EQ(rows.size(), 18u);
}

TEST(CliCompare, DryRunListsAndWritesNothing) {
  const Cli& cli = Cli::instance();
  const std::string out = cli.fresh("compare");
  const ProcessResult result = cli.must_run({"compare", three_runs(), "out=" + out, "--dry-run"});
  EXPECT_TRUE(contains(result.out, "6 runs, ")) << result.out;
  EXPECT_EQ(lines_of(result.out).size(), 8u) << result.out;
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliCompare, BadConfigsAreRefused) {
  const Cli& cli = Cli::instance();
  const std::string out = cli.fresh("compare");
  expect_refused({"compare", three_runs(), "out=" + out, "stepz=3"},
                 {"stepz", "did you mean steps?"});
  expect_refused({"compare", cli.fresh("none.yaml")}, {"none.yaml", "cannot read"});
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace focus
