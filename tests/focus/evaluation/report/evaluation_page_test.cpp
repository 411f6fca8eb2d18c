#include <gmock/gmock.h>

#include <cmath>
#include <regex>

#include "data/settings/struct_json.h"
#include "focus/evaluation/report/evaluation_file.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;

Row row(const std::string& name, AttentionKind kind, double perplexity) {
  return {.attention = {.name = name, .kind = kind},
          .perplexity = perplexity,
          .bits_per_byte = 1,
          .tokens_scored = 100};
}

RecallRow answers(const std::string& name, double near, double far) {
  return {.attention = {.name = name},
          .all = {.answers = 40, .right = (near + far) / 2},
          .by_distance = {{.from = 1, .to = 32, .figures = {.right = near}},
                          {.from = 33, .to = 64, .figures = {.right = far}}}};
}

EvaluationFile everything() {
  EvaluationFile eval{
      .model = "base",
      .texts = TextEvaluation{
          .texts = {"t"}, .bytes = 10, .tokenizer = {"bytes", "f"}, .context = 64, .stride = 32}};
  eval.texts->rows = {row("dense", AttentionKind::dense, 2),
                      row("hard k=1", AttentionKind::hard, 2.5)};
  eval.recall = {.questions = "q.jsonl",
                 .rows = {answers("dense", 1, 0.9), answers("hard k=1", 1, 0.5)}};
  return eval;
}

std::string page_of(const EvaluationFile& eval) {
  HtmlReport report("t");
  add_evaluation(report, eval);
  return report.html();
}

TEST(RowTable, LeavesOutColumnsWithoutAValue) {
  std::vector<Row> rows = {row("dense", AttentionKind::dense, 2),
                           row("hard k=1", AttentionKind::hard, 2.5)};
  EXPECT_EQ(row_table(rows).header,
            (std::vector<std::string>{"attention", "routing", "perplexity", "by word", "bits/byte",
                                      "tokens", "density", "selection"}));
  rows[1].attention.routing = "sequence";
  rows[1].attention.causal = false;
  rows[1].largest_group = 0.25;
  rows[1].kl = 0.5;
  rows[1].nats_against_dense = 0.1;
  rows[1].nats_against_dense_error = 0.01;
  const std::string table = plain_text(row_table(rows), 2);
  for (const char* part :
       {"sequence (not causal)", "2.5000", "25.0 %", "0.50000", "+0.10000 +-0.01000", "largest"})
    EXPECT_THAT(table, HasSubstr(part));
  EXPECT_THAT(table, Not(HasSubstr("tok/s")));
}

TEST(EvaluationPage, JoinsWhatIsOfTheSameTokens) {
  EvaluationFile first = everything(), more = everything(), other = everything(),
                 apart = everything();
  first.where = "a";
  other.where = "c";
  more.texts->rows.push_back(row("summary m=2", AttentionKind::summary, 2.05));
  more.recall->rows.push_back(answers("summary m=2", 1, 0.8));
  other.texts->context = 32;
  apart.texts->rows[1].perplexity = 2.6;  // another attention of the same name
  const auto joined = joined_evaluations({first, more, other, apart, {}});
  ASSERT_EQ(joined.size(), 4U);
  EXPECT_EQ(joined[0].texts->rows.size(), 3U);
  EXPECT_EQ(joined[0].recall->rows.size(), 3U);
  EXPECT_EQ(joined[0].where, "a");
  EXPECT_EQ(joined[1].where, "c");
  EXPECT_EQ(joined[1].texts->rows.size(), 2U);
}

TEST(EvaluationPage, HoldsTablesAndCharts) {
  const std::string html = page_of(everything());
  for (const char* part : {"Recall: q.jsonl", "33 to 64", "50.0 %", "Correct answers by distance",
                           "Perplexity against attention density"})
    EXPECT_THAT(html, HasSubstr(part));
  const std::regex chart("<figure");
  EXPECT_EQ(std::distance(std::sregex_iterator(html.begin(), html.end(), chart), {}), 2);
}

TEST(EvaluationPage, OnlyShowsWhatThereIs) {
  EvaluationFile recall = everything();
  recall.texts.reset();
  const std::string html = page_of(recall);
  EXPECT_THAT(html, AllOf(Not(HasSubstr("Perplexity")), HasSubstr("Recall")));
  EXPECT_THROW(page_of({}), std::runtime_error);
}

TEST(EvaluationFile, IsReadAsItWasWritten) {
  EvaluationFile eval = everything();
  Row& first = eval.texts->rows[0];
  first.pairs_distant = 0.5;
  first.largest_group = 0.4;
  first.group_sizes = {{1, 2}, {3, 0}};
  first.attention.gate = HardGate::keep;
  first.settings.emplace().emplace_back("local_window", "4");
  eval.texts->rows[1].perplexity = NAN;
  const auto written = struct_to_json(eval);
  EXPECT_EQ(struct_to_json(evaluation_from_json(written, "here")), written);
}

TEST(EvaluationFile, WhatIsNoneIsRefused) {
  const auto refusal = [](const nlohmann::json& json) {
    return error_of([&] { evaluation_from_json(json, "e.json"); });
  };
  nlohmann::json eval = struct_to_json(everything());
  EXPECT_EQ(refusal(eval), "");
  EXPECT_EQ(refusal(nlohmann::json::array()), "e.json: not a JSON file of focus eval --json");
  eval["rows"][1].erase("kind");
  EXPECT_EQ(refusal(eval), "e.json.rows[1]: \"kind\" is missing");
  eval["rows"] = 3;
  EXPECT_EQ(refusal(eval), "e.json.rows: expected a list, found number");
  eval.erase("rows");
  EXPECT_EQ(refusal(eval), "e.json: \"rows\" is missing");
}

}  // namespace
}  // namespace focus
