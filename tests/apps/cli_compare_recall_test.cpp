#include "tests/support/cli.h"

// Far tokens and recall as columns and rows of `focus compare`.
namespace focus {
namespace {

using Json = nlohmann::json;

/// Focus and LoRA on the tests' base, asked for copies at two distances.
std::string far_config() {
  const std::string path = cli().fresh("compare.yaml");
  write_text(path, fmt::format(R"(common:
  base: {1}
  steps: 2
  data: {{train: [{0}], valid: [{0}], context: 64, batch: 2}}
  focus: {{num_groups: 3, local_window: 8, tokens: {{routing_dim: 8}}}}
  eval_windows: 2
seeds: [1, 2]
runs:
  - {{name: Focus, attentions: [dense, "hard:1"]}}
  - {{name: LoRA, method: lora, lora.target_modules: [all-linear], seeds: [1]}}
eval:
  valid: [{2}]
  attentions: [dense]
  context: 64
  far: 16
  beyond_positions: true
  recall: ["copy:keys=2,3:distance=0,40:documents=4"]
)",
                               cli().train_text(), cli().base(), cli().valid_text()));
  return path;
}

std::vector<Json> rows_with(const fs::path& out, const char* key) {
  std::vector<Json> rows = compare_rows(out);
  std::erase_if(rows, [&](const Json& row) { return !row.contains(key); });
  return rows;
}

TEST(CliCompareRecall, FiguresAreThoseOfEval) {
  const std::string path = far_config(), out = cli().fresh("compare");
  const ProcessResult first = cli().must_run({"compare", path, "out=" + out});
  const auto texts = rows_with(out, "kept_far");
  ASSERT_EQ(texts.size(), 5U);  // two attentions of two seeds, one of one
  for (const Json& row : texts) EXPECT_TRUE(row.at("nats_far").is_number()) << row;
  const auto recall = rows_with(out, "questions");
  ASSERT_EQ(recall.size() % 5, 0U);
  ASSERT_GE(recall.size() / 5, 2U) << "all distances together, and each bucket";

  const fs::path run = fs::path(out) / "runs" / texts[1].at("hash").get<std::string>();
  const Json eval =
      cli().figures({"eval", cli().base(), "--adapter", (run / "focus.h5").string(), "--attention",
                     "dense,hard:1", "--text", cli().valid_text(), "--context", "64", "--far", "16",
                     "--recall", "copy:keys=2,3:distance=0,40:documents=4", "--beyond-positions"});
  ASSERT_EQ(texts[1].at("attention"), eval.at("far").at("rows").at(1).at("attention"));
  for (const char* key : {"nats_far", "nats_others", "kept_far", "kept_all"})
    EXPECT_EQ(texts[1].at(key), eval.at("far").at("rows").at(1).at(key)) << key;
  EXPECT_EQ(texts[1].at("far_tokens"), eval.at("far").at("far"));
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

  for (const char* part :
       {"long-range retained", "correct", "copy:keys=2,3:distance=0,40:documents=4"})
    EXPECT_TRUE(contains(first.out, part)) << part << "\n" << first.out;
  const std::string html = read_text(fs::path(out) / "compare.html");
  for (const char* part : {"long-range retained", "Recall", "Correct answers by distance",
                           "Share of the long-range gain retained", "with 16 tokens of context"})
    EXPECT_TRUE(contains(html, part)) << part;
  EXPECT_EQ(lines_of(read_text(fs::path(out) / "compare_recall.csv")).size(), recall.size() + 1);

  // Done once; other questions are another evaluation, and nothing is trained again.
  EXPECT_EQ(cli().must_run({"compare", path, "out=" + out}).out, first.out);
  const ProcessResult other =
      cli().must_run({"compare", path, "out=" + out, "eval.recall=[\"copy:keys=2:documents=2\"]"});
  EXPECT_TRUE(contains(other.err, "evaluating on recall: copy:keys=2:documents=2")) << other.err;
  EXPECT_FALSE(contains(other.err, "training")) << other.err;
}

TEST(CliCompareRecall, WhatCannotBeAskedIsSaidBeforeTraining) {
  const std::string path = far_config(), out = cli().fresh("compare");
  const auto refused = [&](const Words& more, const Words& parts) {
    expect_refused(Words{"compare", path, "out=" + out} + more, parts);
  };
  refused({"eval.recall=[poems]"}, {"eval.recall", "poems"});
  refused({"eval.recall=[copy, copy]"}, {"eval.recall: the same questions appear twice"});
  refused({"eval.far=-1"}, {"eval.far"});
  refused({"eval.valid=[]"}, {"eval.far needs texts"});
  refused({"eval.valid=[]", "eval.far=0", "eval.recall=[]"}, {"eval.valid is empty"});
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace focus
