#include <set>

#include "tests/support/cli.h"
#include "tests/support/html.h"

namespace focus {
namespace {

/// A comparison of three runs with two seeds on the tests' text: from scratch dense and with Focus,
/// and a retrofit. `more` are lines of further runs.
std::string three_runs(const std::string& more = "") {
  return compare_config(R"(seeds: [1, 2]
common:
  steps: 6
  data: {data}
  model: {hidden_size: 32, num_hidden_layers: 2}
  focus: {num_groups: 3, local_window: 8, tokens: {routing_dim: 8}}
  log_every: 1
  eval_windows: 2
runs:
)" + more + R"(  - {name: full attention, method: scratch, tokenizer: bytes}
  - {name: Focus <scratch>, method: scratch, tokenizer: bytes, attention: focus}
  - {name: retrofit, base: {base}}
eval: {valid: [{valid}], test: [{train}], context: 64, stride: 32,
       attentions: [dense, local, "focus:1", trained]}
)");
}

TEST(CliCompare, TrainsOnceAndWritesEveryForm) {
  const std::string path = three_runs(), out = cli().fresh("compare");
  const ProcessResult first = cli().must_run({"compare", path, "out=" + out});
  expect_parts(first.err, {"run 6 of 6: retrofit, seed 2: training"});
  expect_parts(first.out, {"Focus <scratch>"});
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
  EXPECT_EQ(lines_of(read_text(out + "/compare.csv")).size(), rows.size() + 1);
  const std::string html = read_text(out + "/compare.html");
  expect_well_formed(html);
  expect_parts(html, {"Focus &lt;scratch&gt;"});
  EXPECT_FALSE(contains(html, "<script"));

  const auto before = snapshot(out + "/runs");
  const ProcessResult again = cli().must_run({"compare", path, "out=" + out});
  expect_parts(again.err, {"run 6 of 6: retrofit, seed 2: done before"});
  EXPECT_FALSE(contains(again.err, "training")) << again.err;
  EXPECT_EQ(again.out, first.out);
  EXPECT_EQ(snapshot(out + "/runs"), before);

  // How often a run reports makes no other run, other text does.
  cli().must_run({"compare", path, "out=" + out, "seeds=1", "log_every=2"});
  EXPECT_EQ(files_in(out + "/runs"), 6u);
  cli().must_run({"compare", path, "out=" + out, "seeds=1", "data.valid=" + cli().train_text()});
  EXPECT_EQ(files_in(out + "/runs"), 9u);
}

TEST(CliCompare, TheFiguresAreThoseOfTrainAndEval) {
  const std::string path = three_runs(), out = cli().fresh("compare"), alone = cli().fresh("alone");
  cli().must_run({"compare", path, "out=" + out, "seeds=2"});
  const auto rows = compare_rows(out);
  const fs::path run = fs::path(out) / "runs" / rows.back()["hash"].get<std::string>();
  cli().must_run({"train", (run / "config.yaml").string(), "out=" + alone});
  expect_same_run(run, alone);
  const auto eval =
      cli().rows(words("{base} --adapter {}/focus.h5 --text {valid} --context 64 "
                       "--stride 32 --attention dense,local,focus:1",
                       alone));
  ASSERT_EQ(eval.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(rows[rows.size() - 4 + i]["perplexity"], eval[i]["perplexity"]);

  // Evaluated further after the folder has been moved.
  const std::string moved = cli().fresh("moved");
  fs::rename(out, moved);
  const ProcessResult more =
      cli().must_run({"compare", path, "out=" + moved, "seeds=2", "eval.context=32"});
  EXPECT_FALSE(contains(more.err, "training")) << more.err;
  EXPECT_EQ(compare_rows(moved).back()["hash"], rows.back()["hash"]);
}

TEST(CliCompare, ThePlaneOfTargetAndSource) {
  const std::string out = cli().fresh("compare"), path = compare_config(R"(common:
  base: {base}
  steps: 6
  data: {data}
  focus: {num_groups: 3, local_window: 8, tokens: {routing_dim: 8}}
  eval_windows: 2
runs:
  - {name: Focus}
  - {name: LoRA, method: lora, sweep: {optim.lr: [0.001, 0.05]}}
eval: {texts: {target: [{train}], source: [{valid}]},
       test_texts: {target: [{valid}], source: [{valid}]},
       context: 64, stride: 32, attentions: [dense, soft]}
)");
  cli().must_run({"compare", path, "out=" + out});
  std::map<std::string, int> splits;
  for (const auto& row : compare_rows(out)) ++splits[row["split"]];
  EXPECT_EQ(splits, (std::map<std::string, int>{{"source", 4}, {"target", 4}}));
  const std::string html = read_text(out + "/compare.html");
  expect_well_formed(html);
  expect_parts(html, {"Learning and forgetting", "Target texts", "Source texts", "lr=0.05",
                      "Target loss against source loss"});
  const std::string base = html.substr(html.find("<td>base</td>"), 250);
  EXPECT_FALSE(contains(base.substr(0, base.find("</tr>")), "-0.0000")) << base;
  EXPECT_FALSE(contains(html, "test texts"));
  cli().must_run({"compare", path, "out=" + out, "--final"});
  expect_parts(read_text(out + "/compare.html"), {"Learning and forgetting, test texts"});
  expect_refused({"compare", path, "out=" + out, "--final", "eval.test_texts.target=[]",
                  "eval.test_texts.source=[]"},
                 {"--final"});
}

TEST(CliCompare, AFailedRunIsListedAndTheOthersGoOn) {
  const std::string missing = cli().fresh("none.h5"), out = cli().fresh("compare");
  const std::string path =
      three_runs("  - {name: no base, base: " + missing +
                 "}\n"
                 "  - {name: wild, method: scratch, tokenizer: bytes, optim: {lr: 1e30}}\n");
  const ProcessResult result = cli().run({"compare", path, "out=" + out, "seeds=1"});
  EXPECT_EQ(result.status, 1) << result.err;
  expect_parts(result.out,
               {"FAILED no base, seed 1: " + missing, "FAILED wild, seed 1: focus train: step "});
  const auto rows = compare_rows(out);
  ASSERT_EQ(rows.size(), 2u + 1 + 4 + 4);
  expect_parts(rows[0]["error"], {missing});
  EXPECT_FALSE(rows[0].contains("perplexity"));
  EXPECT_TRUE(rows.back()["error"].is_null());
  expect_well_formed(read_text(out + "/compare.html"));
}

TEST(CliCompare, AStoppedOneHasTablesOfWhatIsDoneAndGoesOnToTheSameBits) {
  const std::string path = three_runs(), out = cli().fresh("partly"), whole = cli().fresh("whole");
  const auto command = [&](const std::string& where) {
    return words("compare {} out={} seeds=1 steps=400 log_every=1", path, where);
  };
  const auto process = cli().start(command(out));
  const fs::path page = out + "/compare.html";
  // Until the first run is done and the second has begun.
  ASSERT_TRUE(Process::wait_until(
      kRunSeconds, [&] { return fs::exists(page) && files_in(out + "/runs") == 2; }));
  process->send(SIGINT);
  const ProcessResult stopped = process->wait(kRunSeconds);
  EXPECT_EQ(stopped.status, 1) << stopped.err;
  expect_parts(stopped.err, {"stopped after 1 of 3 runs"});
  const std::string html = read_text(page);
  expect_parts(html, {" of 3, the others are not finished"});
  expect_well_formed(html);
  std::set<std::string> runs;
  for (const nlohmann::json& row : compare_rows(out)) runs.insert(row.at("run").get<std::string>());
  EXPECT_EQ(runs.size(), 1u);
  cli().must_run(command(out));
  EXPECT_FALSE(contains(read_text(page), "are not finished"));
  cli().must_run(command(whole));
  for (const auto& run : fs::directory_iterator(whole + "/runs"))
    expect_same_run(fs::path(out) / "runs" / run.path().filename(), run.path());
}

/// The only run that a folder holds.
fs::path only_run(const fs::path& out) {
  EXPECT_EQ(files_in(out / "runs"), 1u);
  return fs::directory_iterator(out / "runs")->path();
}

TEST(CliCompare, AValueThatIsTheDefaultsMakesNoOtherRun) {
  const std::string out = cli().fresh("compare"), path = compare_config(R"(
common: {steps: 3, data: {train: [{train}], valid: [{train}], context: 64}}
runs: [{name: only, method: scratch, tokenizer: bytes, model: {hidden_size: 32}}]
eval: {valid: [{train}], context: 64}
)");
  const Words compare = {"compare", path, "out=" + out};
  cli().must_run(compare);
  const fs::path run = only_run(out);
  const auto before = snapshot(run);
  expect_parts(cli().must_run(compare).err, {"only, seed 1: done before"});
  expect_parts(cli().must_run(compare + "optim.clip_norm=1").err, {"done before"});
  EXPECT_EQ(snapshot(only_run(out)), before);
}

TEST(CliCompare, TwoInOneFolderTheSecondStopsAndAKilledOneBarsNobody) {
  const std::string path = three_runs(), out = cli().fresh("compare");
  const Words compare = {"compare", path, "out=" + out, "seeds=1"};
  const auto first = cli().start(compare + Words{"steps=1000000"});
  const auto holder = [&] {
    const fs::path lock = fs::path(out) / "compare.lock";
    return fs::exists(lock) ? read_text(lock) : std::string();
  };
  const auto is_training = [&] {
    return fs::is_directory(out + "/runs") && files_in(out + "/runs") == 1 &&
           fs::exists(only_run(out) / "metrics.jsonl");
  };
  ASSERT_TRUE(Process::wait_until(kRunSeconds, is_training));
  expect_refused(compare, {out, "process " + holder(), "out="});
  first->send(SIGKILL);
  first->wait(kRunSeconds);
  // The run that is left writes its checkpoint and ends.
  ProcessResult second;
  ASSERT_TRUE(Process::wait_until(kRunSeconds, [&] {
    second = cli().run(compare);
    return second.status == 0 || !contains(second.err, "uses this folder");
  }));
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(files_in(out + "/runs"), 4u);
}

TEST(CliCompare, TestTextsWithFinalAlone) {
  const std::string path = three_runs(), out = cli().fresh("compare");
  cli().must_run({"compare", path, "out=" + out, "seeds=1"});
  cli().must_run({"compare", path, "out=" + out, "seeds=1", "--final"});
  const auto rows = compare_rows(out);
  EXPECT_EQ(std::ranges::count(rows, "test", [](const auto& r) { return r["split"]; }), 9);
  EXPECT_EQ(rows.size(), 18u);
}

TEST(CliCompare, DryRunListsAndWritesNothing) {
  const std::string out = cli().fresh("compare");
  const ProcessResult result = cli().must_run({"compare", three_runs(), "out=" + out, "--dry-run"});
  expect_parts(result.out, {"6 runs, "});
  EXPECT_EQ(lines_of(result.out).size(), 8u) << result.out;
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliCompare, BadConfigsAreRefused) {
  const std::string out = cli().fresh("compare");
  expect_refused({"compare", three_runs(), "out=" + out, "stepz=3"},
                 {"stepz", "did you mean steps?"});
  expect_refused({"compare", cli().fresh("none.yaml")}, {"none.yaml", "cannot read"});
  EXPECT_FALSE(fs::exists(out));
}

// Recall as rows of `focus compare`.

using Json = nlohmann::json;

/// Focus and LoRA on the tests' base, asked for copies at two distances.
std::string far_config() {
  return compare_config(R"(common:
  base: {base}
  steps: 2
  data: {train: [{train}], valid: [{train}], context: 64, batch: 2}
  focus: {num_groups: 3, local_window: 8, tokens: {routing_dim: 8}}
  eval_windows: 2
seeds: [1, 2]
runs:
  - {name: Focus, attentions: [dense, "hard:1"]}
  - {name: LoRA, method: lora, lora.target_modules: [all-linear], seeds: [1]}
eval:
  valid: [{valid}]
  attentions: [dense]
  context: 64
  beyond_positions: true
  recall: ["copy:keys=2,3:distance=0,40:documents=4"]
)");
}

std::vector<Json> rows_with(const fs::path& out, const char* key) {
  std::vector<Json> rows = compare_rows(out);
  std::erase_if(rows, [&](const Json& row) { return !row.contains(key); });
  return rows;
}

TEST(CliCompareRecall, FiguresAreThoseOfEval) {
  const std::string path = far_config(), out = cli().fresh("compare");
  const ProcessResult first = cli().must_run({"compare", path, "out=" + out});
  const auto texts = rows_with(out, "perplexity");
  ASSERT_EQ(texts.size(), 5U);  // two attentions of two seeds, one of one
  const auto recall = rows_with(out, "questions");
  ASSERT_EQ(recall.size() % 5, 0U);
  ASSERT_GE(recall.size() / 5, 2U) << "all distances together, and each bucket";

  const fs::path run = fs::path(out) / "runs" / texts[1].at("hash").get<std::string>();
  const Json eval = cli().figures(
      words("eval {base} --adapter {} --attention dense,hard:1 --text {valid} --context 64 "
            "--recall copy:keys=2,3:distance=0,40:documents=4 --beyond-positions",
            (run / "focus.h5").string()));
  for (const char* key : {"attention", "perplexity", "pairs_attended"})
    EXPECT_EQ(texts[1].at(key), eval.at("rows").at(1).at(key)) << key;
  const Json& asked = eval.at("recall").at("rows").at(1);
  std::size_t buckets = 0;
  for (const Json& row : recall) {
    if (row.at("hash") != texts[1].at("hash") || row.at("attention") != asked.at("attention"))
      continue;
    const Json& expected = row.at("to").is_null() ? asked : asked.at("by_distance").at(buckets++);
    EXPECT_EQ(row.at("right"), expected.at("right"));
    EXPECT_EQ(row.at("answers"), expected.at("answers"));
  }
  EXPECT_EQ(buckets, asked.at("by_distance").size());

  expect_parts(first.out, {"correct", "copy:keys=2,3:distance=0,40:documents=4"});
  expect_parts(read_text(out + "/compare.html"), {"Recall", "Correct answers by distance"});
  EXPECT_EQ(lines_of(read_text(out + "/compare_recall.csv")).size(), recall.size() + 1);

  // Done once; other questions are another evaluation, and nothing is trained again.
  EXPECT_EQ(cli().must_run({"compare", path, "out=" + out}).out, first.out);
  const ProcessResult other =
      cli().must_run({"compare", path, "out=" + out, "eval.recall=[\"copy:keys=2:documents=2\"]"});
  expect_parts(other.err, {"evaluating on recall: copy:keys=2:documents=2"});
  EXPECT_FALSE(contains(other.err, "training")) << other.err;
}

TEST(CliCompareRecall, WhatCannotBeAskedIsSaidBeforeTraining) {
  const std::string path = far_config(), out = cli().fresh("compare");
  for (const auto& [keys, parts] : std::vector<std::pair<Words, std::vector<std::string>>>{
           {"eval.recall=[poems]", {"eval.recall", "poems"}},
           {{"eval.recall=[copy, copy]"}, {"eval.recall: the same questions appear twice"}},
           {"eval.valid=[] eval.recall=[]", {"eval.valid is empty"}}})
    expect_refused(words("compare {} out={}", path, out) + keys, parts);
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace focus
