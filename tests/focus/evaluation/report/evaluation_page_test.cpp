#include "focus/evaluation/report/evaluation_page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/settings/struct_json.h"

namespace focus {
namespace {

EvaluationRow row(const std::string& name, const std::string& kind, double perplexity) {
  return {.attention = {.name = name, .kind = kind},
          .perplexity = perplexity,
          .bits_per_byte = 1,
          .tokens_scored = 100};
}

EvaluationFile evaluation(double local) {
  const WindowEvaluation windows{
      .context = 64,
      .stride = 32,
      .rows = {row("dense", "dense", 2), row("local only", "local", local)}};
  return {.model = "base",
          .texts = TextEvaluation{
              .texts = {"t"}, .bytes = 10, .tokenizer = {"bytes", "f"}, .windows = windows}};
}

std::vector<EvaluationRow>& rows_of(EvaluationFile& eval) { return eval.texts->windows->rows; }

RecallFigures answers(const std::string& name, double near, double far) {
  return {.attention = name,
          .kind = "dense",
          .routing = "-",
          .all = {.answers = 40, .right = (near + far) / 2},
          .by_distance = {{.from = 1, .to = 32, .figures = {.right = near}},
                          {.from = 33, .to = 64, .figures = {.right = far}}}};
}

EvaluationFile everything() {
  EvaluationFile eval = evaluation(2.5);
  eval.recall = {.questions = "q.jsonl",
                 .rows = {answers("dense", 1, 0.9), answers("hard k=1", 1, 0.5)}};
  eval.texts->windows->far = {.settings = {.context = 64, .margin = 0.5},
                              .reference = {},
                              .tokens = 100,
                              .far = 30,
                              .window = "sink_window w=32",
                              .rows = {{"dense", "-", 1, 1, 1, 1},
                                       {"hard k=1", "-", 2, 1, 0.625, NAN},
                                       {"sink_window w=32", "-", 3, 1, 0, 0}}};
  for (EvaluationRow& one : rows_of(eval))
    one.by_position = {{.from = 1, .to = 2, .tokens = 2, .nats = 3},
                       {.from = 2, .to = 4, .tokens = 4, .nats = 2}};
  return eval;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(Findings, SayWhetherTheTextAsksForDistance) {
  const auto far = findings(evaluation(2.5));
  ASSERT_EQ(far.size(), 1U);
  expect_part(far[0], "25.0 % worse");
  expect_part(far[0], "2.500 against 2.000");
  expect_part(far[0], "depends on distant tokens");
  const auto near = findings(evaluation(2.04));
  expect_part(near.at(0), "2.0 % worse");
  expect_part(near.at(0), "depends little on distant tokens");
}

TEST(Findings, TellRecallAndFarTokens) {
  const auto sentences = findings(everything());
  ASSERT_EQ(sentences.size(), 3U);
  expect_part(sentences[1], "Of 40 questions about text up to 64 tokens before");
  expect_part(sentences[1], "correct answers: dense 95.0 % and hard k=1 75.0 %");
  expect_part(sentences[2], "30 of 100 tokens (30.0 %)");
}

TEST(Findings, NameTheRowOfGroupsThatComesNearest) {
  EvaluationFile eval = everything();
  EvaluationRow hard = row("hard k=1", "hard", 2.1), worse = row("hard k=2", "hard", 2.2),
                better = row("quest 4", "baseline", 2.01), all = row("hard k=4", "hard", 2.0),
                ahead = row("soft", "soft", 2.02), leaks = row("hard k=3", "hard", 2.0);
  hard.pairs_attended = 0.25;
  worse.pairs_attended = better.pairs_attended = leaks.pairs_attended = 0.5;
  leaks.attention.causal = false;
  for (const EvaluationRow& one : {hard, worse, better, all, ahead, leaks})
    rows_of(eval).push_back(one);
  const std::string found = findings(eval).at(2);
  expect_part(
      found, "hard k=1 is best: perplexity +5.0 % against dense at an attention density of 25.0 %");
  expect_part(found, "75.0 % of the answers correct");
  expect_part(found, "retains 62.5 % of the long-range gain on the 30 of 100 tokens (30.0 %)");
}

TEST(Findings, OneNameWithTwoRoutingsIsTwoRows) {
  EvaluationFile eval = everything();
  EvaluationRow leaks = row("hard k=1", "hard", 2.05), causal = row("hard k=1", "hard", 2.1);
  leaks.attention.routing = "sequence";
  leaks.attention.causal = false;
  causal.attention.routing = "carried";
  leaks.pairs_attended = causal.pairs_attended = 0.25;
  for (const EvaluationRow& one : {leaks, causal}) rows_of(eval).push_back(one);
  std::vector<FarRow>& far = eval.texts->windows->far->rows;
  far[1].routing = "sequence (not causal)";
  far.push_back(far[1]);
  far.back().routing = "carried";
  far.back().kept = 0.5;
  expect_part(findings(eval).at(2), "retains 50.0 % of the long-range gain");
  const auto rows = overview(eval).rows;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[2].at(rows[2].size() - 2), "62.5 %");
  EXPECT_EQ(rows[3].at(rows[3].size() - 2), "50.0 %");
}

TEST(Findings, OfLengthsCompareTheFirstAndTheLast) {
  EvaluationFile eval = evaluation(2.5);
  WindowEvaluation shorter = *eval.texts->windows, longer = shorter;
  shorter.context = 32;
  longer.rows[1].perplexity = 3;
  eval.texts->windows.reset();
  eval.texts->lengths = {shorter, longer};
  const auto sentences = findings(eval);
  ASSERT_EQ(sentences.size(), 2U);
  expect_part(sentences[0], "local only +25.0 % at 32 tokens and +50.0 % at 64 tokens");
  expect_part(sentences[1], "50.0 % worse");
  HtmlReport report("t");
  add_evaluation(report, eval, "here");
  expect_part(report.html(), "Perplexity by context");
  expect_part(plain_text(perplexity_by_length(*eval.texts->lengths), 1), "3.0000 (100 %)");
}

TEST(Findings, SayNothingOfWhatWasNotMeasured) {
  EvaluationFile eval = evaluation(2.5);
  rows_of(eval).pop_back();
  EXPECT_TRUE(findings(eval).empty());
  EXPECT_TRUE(findings({}).empty());
}

TEST(EvaluationPage, JoinsWhatIsOfTheSameTokens) {
  EvaluationFile more = everything(), other = everything(), apart = everything();
  rows_of(more).push_back(row("summary m=2", "summary", 2.05));
  more.recall->rows.push_back(answers("summary m=2", 1, 0.8));
  other.texts->windows->context = 32;
  rows_of(apart)[1].perplexity = 2.6;  // another window's row of the same name
  auto joined =
      joined_evaluations({{"a", everything()}, {"b", more}, {"c", other}, {"d", apart}, {"e", {}}});
  ASSERT_EQ(joined.size(), 4U);
  EXPECT_EQ(rows_of(joined[0].figures).size(), 3U);
  EXPECT_EQ(joined[0].figures.recall->rows.size(), 3U);
  EXPECT_EQ(joined[0].where, "a");
  EXPECT_EQ(joined[1].where, "c");
  EXPECT_EQ(rows_of(joined[1].figures).size(), 2U);
}

TEST(EvaluationPage, HoldsTablesAndCharts) {
  HtmlReport report("t");
  add_evaluation(report, everything(), "here");
  const std::string html = report.html();
  for (const char* part : {"Recall: q.jsonl", "33 to 64", "50.0 %", "Long-range tokens",
                           "64 to 79 tokens", "62.5 %", "Loss by position",
                           "Correct answers by distance", "Perplexity", "Summary", "retained, all"})
    expect_part(html, part);
  std::size_t charts = 0;
  for (std::size_t at = html.find("<figure"); at != std::string::npos;
       at = html.find("<figure", at + 1))
    ++charts;
  EXPECT_EQ(charts, 3U);
}

TEST(EvaluationPage, OnlyShowsWhatThereIs) {
  EvaluationFile recall = everything();
  recall.texts.reset();
  HtmlReport report("t");
  add_evaluation(report, recall, "here");
  EXPECT_EQ(report.html().find("Perplexity"), std::string::npos);
  EXPECT_EQ(report.html().find("Long-range tokens"), std::string::npos);
  expect_part(report.html(), "Recall");
  EXPECT_THROW(add_evaluation(report, {}, "here"), std::runtime_error);
}

TEST(EvaluationFile, IsReadAsItWasWritten) {
  EvaluationFile eval = everything();
  rows_of(eval)[0].groups = {
      .pairs_distant = 0.5, .largest = 0.4, .largest_worst_layer = 0.6, .sizes = {{1, 2}, {3, 0}}};
  rows_of(eval)[0].settings.emplace().emplace_back("local_window", "4");
  rows_of(eval)[1].perplexity = NAN;
  const auto written = struct_to_json(eval);
  EXPECT_EQ(struct_to_json(evaluation_from_json(written, "here")), written);
  EXPECT_TRUE(std::isnan(rows_of(eval)[1].perplexity));
  eval.texts->lengths = {*eval.texts->windows, *eval.texts->windows};
  eval.texts->windows.reset();
  const auto of_lengths = struct_to_json(eval);
  EXPECT_EQ(struct_to_json(evaluation_from_json(of_lengths, "here")), of_lengths);
}

TEST(EvaluationFile, WhatIsNoneIsRefused) {
  const auto refusal = [](const nlohmann::json& json) -> std::string {
    try {
      evaluation_from_json(json, "e.json");
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  nlohmann::json eval = struct_to_json(evaluation(2));
  EXPECT_EQ(refusal(eval), "");
  EXPECT_EQ(refusal(nlohmann::json::array()), "e.json: not a JSON file of focus eval --json");
  eval["rows"][1].erase("kind");
  EXPECT_EQ(refusal(eval), "e.json.rows[1]: \"kind\" is missing");
  eval["rows"] = 3;
  EXPECT_EQ(refusal(eval), "e.json.rows: expected a list, found number");
  eval.erase("rows");
  EXPECT_EQ(refusal(eval), "e.json: texts without rows");
  eval["lengths"] = nlohmann::json::array();
  EXPECT_EQ(refusal(eval), "e.json: lengths without rows");
}

}  // namespace
}  // namespace focus
