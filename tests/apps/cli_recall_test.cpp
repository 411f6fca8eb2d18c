#include "tests/support/cli.h"

// Long-range recall: `focus corpus --kind`, `focus eval --recall`, `--far`, `--html`.
namespace focus {
namespace {

std::string questions() {
  static const std::string path = [] {
    const std::string made = cli().fresh("questions.jsonl");
    cli().must_run({"corpus", "--out", cli().fresh("recall.txt"), "--questions", made, "--kind",
                    "recall", "--documents", "3", "--keys", "4", "--distance", "0,30", "--share",
                    "0.7"});
    return made;
  }();
  return path;
}

TEST(CliRecall, CorpusWritesTextAndQuestions) {
  const std::string text = cli().fresh("copy.txt"), asked = cli().fresh("copy.jsonl");
  cli().must_run({"corpus", "--out", text, "--questions", asked, "--kind", "copy", "--documents",
                  "4", "--separator", "#"});
  const auto lines = lines_of(read_text(asked));
  ASSERT_EQ(lines.size(), 4U);
  std::string joined;
  for (const std::string& line : lines)
    joined +=
        (joined.empty() ? "" : "#") + nlohmann::json::parse(line).at("text").get<std::string>();
  EXPECT_EQ(read_text(text), joined);
  EXPECT_EQ(lines_of(read_text(questions())).size(), 2U) << "tales ask nothing";
}

TEST(CliRecall, CorpusRefusesWhatItCannotMean) {
  const std::string out = cli().fresh("x.txt");
  expect_refused({"corpus", "--out", out, "--questions", "q"}, {"--questions", "tales"});
  expect_refused({"corpus", "--out", out, "--kind", "poems"}, {"--kind", "recall"});
  expect_refused({"corpus", "--out", out, "--kind", "copy", "--share", "2"}, {"--share"});
  expect_refused({"corpus", "--out", out, "--kind", "copy", "--distance", "[]"}, {"distance"});
  expect_refused({"corpus", "--out", out, "--kind", "copy", "--length", "50"}, {"length is 50"});
  expect_refused({"corpus", "--out", out, "--length", "5000"}, {"length is 5000", "tales"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliRecall, EvalPrintsAccuracyForEveryAttention) {
  const std::string json = cli().fresh("eval.json");
  const auto result =
      cli().must_run({"eval", cli().base(), "--adapter", cli().adapter(), "--recall", questions(),
                      "--beyond-positions", "--attention",
                      "dense,local,sink_window:8,soft,hard:1,summary:1", "--json", json});
  EXPECT_TRUE(contains(result.out, "routing") && contains(result.out, "correct")) << result.out;
  const auto figures = nlohmann::json::parse(read_text(json));
  EXPECT_FALSE(figures.contains("rows"));
  const auto& rows = figures.at("recall").at("rows");
  ASSERT_EQ(rows.size(), 6U);
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("answers"), 8);
    std::int64_t answers = 0;
    for (const auto& bucket : row.at("by_distance")) answers += bucket.at("answers").get<int>();
    EXPECT_EQ(answers, 8);
    EXPECT_TRUE(contains(result.out, row.at("attention").get<std::string>()));
  }
}

TEST(CliRecall, EvalMarksFarTokensAndWritesAPage) {
  const std::string json = cli().fresh("eval.json"), page = cli().fresh("eval.html");
  const auto result = cli().must_run({"eval", cli().base(), "--adapter", cli().adapter(), "--text",
                                      cli().valid_text(), "--far", "16", "--html", page, "--recall",
                                      "copy:keys=2,3:distance=0:documents=2", "--attention",
                                      "dense,hard:1", "--json", json});
  EXPECT_TRUE(contains(result.out, " tokens are long-range")) << result.out;
  const auto figures = nlohmann::json::parse(read_text(json));
  const auto& far = figures.at("far");
  EXPECT_EQ(far.at("context"), 16);
  EXPECT_EQ(far.at("step"), 4);
  EXPECT_EQ(far.at("tokens"), figures.at("rows")[0].at("tokens_scored"));
  ASSERT_EQ(far.at("rows").size(), 3U) << "the window is added";
  EXPECT_EQ(far.at("window"), far.at("rows")[2].at("attention"));
  // Far and other tokens together are the row's.
  const double share = far.at("far").get<double>() / far.at("tokens").get<double>();
  const double others = far.at("rows")[0].at("nats_others");
  const double on_far = far.at("far") == 0 ? 0 : far.at("rows")[0].at("nats_far").get<double>();
  EXPECT_NEAR(share * on_far + (1 - share) * others,
              figures.at("rows")[0].at("nats_per_token").get<double>(), 1e-9);
  EXPECT_FALSE(figures.at("rows")[1].at("by_position").empty());
  const std::string html = read_text(page);
  for (const char* part : {"Long-range tokens", "Recall", "Loss by position", "<svg", "</html>"})
    EXPECT_TRUE(contains(html, part)) << part;
}

TEST(CliRecall, FarTokensOfAnotherModel) {
  const Words eval = {"eval",  cli().base(), "--text",      cli().valid_text(),
                      "--far", "16",         "--attention", "window:4"};
  const auto own = cli().figures(eval).at("far");
  const auto far = cli().figures(eval + Words{"--reference", cli().base()}).at("far");
  EXPECT_EQ(own.at("reference"), "");
  EXPECT_EQ(far.at("reference"), cli().base());
  EXPECT_EQ(far.at("far"), own.at("far"));
  // Its dense attention and window beside what was asked for.
  ASSERT_EQ(far.at("rows").size(), 3U);
  EXPECT_EQ(far.at("rows")[0].at("attention"), cli().base() + ": dense");
  for (const std::size_t row : {0, 1, 2})
    EXPECT_EQ(far.at("rows")[row].at("nats_far"), own.at("rows")[row].at("nats_far"));
  expect_refused({"eval", cli().base(), "--text", cli().valid_text(), "--reference", cli().base()},
                 {"--reference needs --far"});
}

TEST(CliRecall, BadQuestionsAreOneLine) {
  const std::string bad = cli().fresh("bad.jsonl");
  write_text(bad, "{\"text\": \"ab\", \"answers\": []}\n");
  expect_refused({"eval", cli().base(), "--recall", bad}, {bad, "line 1"});
  expect_refused({"eval", cli().base(), "--recall", "poems"}, {"poems", "recall"});
  expect_refused({"eval", cli().base(), "--recall", "recall:documents=1000000000"},
                 {"1000000000 documents", "use fewer"});
  expect_refused({"eval", cli().base(), "--far", "8", "--recall", "copy"}, {"--far needs --text"});
  expect_refused({"eval", cli().base(), "--recall", "copy:distance=4000"},
                 {"document 1", "--beyond-positions"});
}

TEST(CliRecall, RotaryPositionsGoOnWhereAsked) {
  const Words eval = {"eval", cli().base(), "--text", cli().valid_text(), "--attention", "dense"};
  expect_refused(eval + Words{"--context", "128"}, {"64 positions", "--beyond-positions"});
  const auto result = cli().must_run(eval + Words{"--context", "128", "--beyond-positions"});
  EXPECT_TRUE(contains(result.err, "exceed the 64 positions")) << result.err;
  EXPECT_TRUE(contains(result.out, "context 128"));
  expect_refused({"eval", cli().other_base(), "--text", cli().valid_text(), "--context", "128",
                  "--beyond-positions"},
                 {"64 positions", "learned"});
}

}  // namespace
}  // namespace focus
