#include "focus/report/evaluation_page.h"

#include <gtest/gtest.h>

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

Json row(const std::string& name, const std::string& kind, double perplexity) {
  return {{"attention", name},    {"kind", kind},         {"top_k", nullptr},
          {"routing", nullptr},   {"causal", true},       {"perplexity", perplexity},
          {"bits_per_byte", 1.0}, {"tokens_scored", 100}, {"pairs_attended", 1.0}};
}

Json evaluation(double local) {
  return {{"model", "base"},
          {"texts", Json::array({"t"})},
          {"bytes", 10},
          {"tokenizer", {{"kind", "bytes"}, {"fingerprint", "f"}}},
          {"context", 64},
          {"stride", 32},
          {"rows", {row("dense", "dense", 2), row("local only", "local", local)}}};
}

Json recall_row(const std::string& name, double near, double far) {
  return {
      {"attention", name},
      {"right", (near + far) / 2},
      {"answers", 40},
      {"by_distance",
       {{{"from", 1}, {"to", 32}, {"right", near}}, {{"from", 33}, {"to", 64}, {"right", far}}}}};
}

Json everything() {
  Json eval = evaluation(2.5);
  eval["recall"] = {{"questions", "q.jsonl"},
                    {"rows", {recall_row("dense", 1, 0.9), recall_row("hard k=1", 1, 0.5)}}};
  eval["far"] = {{"far", 30},
                 {"tokens", 100},
                 {"context", 64},
                 {"step", 16},
                 {"margin", 0.5},
                 {"window", "sink_window w=32"},
                 {"rows",
                  {{{"attention", "dense"},
                    {"nats_far", 1.0},
                    {"nats_others", 1.0},
                    {"kept_far", 1.0},
                    {"kept_all", 1.0}},
                   {{"attention", "hard k=1"},
                    {"nats_far", 2.0},
                    {"nats_others", 1.0},
                    {"kept_far", 0.625},
                    {"kept_all", nullptr}},
                   {{"attention", "sink_window w=32"},
                    {"nats_far", 3.0},
                    {"nats_others", 1.0},
                    {"kept_far", 0.0},
                    {"kept_all", 0.0}}}}};
  for (Json& one : eval["rows"])
    one["by_position"] = {{{"from", 1}, {"to", 1}, {"tokens", 2}, {"nats_per_token", 3.0}},
                          {{"from", 2}, {"to", 3}, {"tokens", 4}, {"nats_per_token", 2.0}}};
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
  expect_part(far[0], "asks for what stands far before");
  const auto near = findings(evaluation(2.04));
  expect_part(near.at(0), "2.0 % worse");
  expect_part(near.at(0), "little beyond near tokens");
}

TEST(Findings, TellRecallAndFarTokens) {
  const auto sentences = findings(everything());
  ASSERT_EQ(sentences.size(), 3U);
  expect_part(sentences[1], "Asked 40 times for what stands up to 64 tokens before");
  expect_part(sentences[1], "these are right: dense 95.0 % and hard k=1 75.0 %");
  expect_part(sentences[2], "30 of 100 tokens (30.0 %)");
}

TEST(Findings, NameTheRowOfGroupsThatComesNearest) {
  Json eval = everything();
  Json hard = row("hard k=1", "hard", 2.1), worse = row("hard k=2", "hard", 2.2),
       better = row("quest 4", "rival", 2.01), all = row("hard k=4", "hard", 2.0),
       ahead = row("soft", "soft", 2.02), leaks = row("hard k=3", "hard", 2.0);
  hard["pairs_attended"] = 0.25;
  worse["pairs_attended"] = better["pairs_attended"] = leaks["pairs_attended"] = 0.5;
  leaks["causal"] = false;
  for (const Json& one : {hard, worse, better, all, ahead, leaks}) eval["rows"].push_back(one);
  const std::string found = findings(eval).at(2);
  expect_part(found, "hard k=1 does best: perplexity +5.0 % against dense at 25.0 % of the pairs");
  expect_part(found, "75.0 % of the answers right");
  expect_part(found, "keeps 62.5 % of what the window loses on 30 of 100 tokens (30.0 %)");
}

TEST(Findings, OneNameWithTwoRoutingsIsTwoRows) {
  Json eval = everything();
  Json leaks = row("hard k=1", "hard", 2.05), causal = row("hard k=1", "hard", 2.1);
  leaks["routing"] = "sequence";
  leaks["causal"] = false;
  causal["routing"] = "carried";
  leaks["pairs_attended"] = causal["pairs_attended"] = 0.25;
  for (const Json& one : {leaks, causal}) eval["rows"].push_back(one);
  Json& far = eval["far"]["rows"];
  far[1]["routing"] = "sequence (not causal)";
  far.push_back(far[1]);
  far.back()["routing"] = "carried";
  far.back()["kept_far"] = 0.5;
  expect_part(findings(eval).at(2), "keeps 50.0 % of what the window loses");
  const auto rows = overview(eval).rows;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[2].at(rows[2].size() - 2), "62.5 %");
  EXPECT_EQ(rows[3].at(rows[3].size() - 2), "50.0 %");
}

TEST(Findings, OfLengthsCompareTheFirstAndTheLast) {
  Json eval = evaluation(2.5), shorter = eval, longer = eval;
  shorter["context"] = 32;
  longer["rows"][1]["perplexity"] = 3.0;
  eval.erase("rows");
  eval["lengths"] = {shorter, longer};
  const auto sentences = findings(eval);
  ASSERT_EQ(sentences.size(), 2U);
  expect_part(sentences[0], "local only +25.0 % at 32 tokens and +50.0 % at 64 tokens");
  expect_part(sentences[1], "50.0 % worse");
  HtmlReport report("t");
  add_evaluation(report, eval, "here");
  expect_part(report.html(), "Perplexity by context");
  expect_part(plain_text(perplexity_by_length(eval["lengths"]), 1), "3.0000 (100 %)");
}

TEST(Findings, SayNothingOfWhatWasNotMeasured) {
  Json eval = evaluation(2.5);
  eval["rows"].erase(1);
  EXPECT_TRUE(findings(eval).empty());
  EXPECT_TRUE(findings(Json::array()).empty());
}

TEST(EvaluationPage, JoinsWhatIsOfTheSameTokens) {
  Json more = everything(), other = everything(), apart = everything();
  more["rows"].push_back(row("summary m=2", "summary", 2.05));
  more["recall"]["rows"].push_back(recall_row("summary m=2", 1, 0.8));
  other["context"] = 32;
  apart["rows"][1]["perplexity"] = 2.6;  // another window's row of the same name
  const auto joined = joined_evaluations(
      {{"a", everything()}, {"b", more}, {"c", other}, {"d", apart}, {"e", Json::array()}});
  ASSERT_EQ(joined.size(), 4U);
  EXPECT_EQ(joined[0].figures.at("rows").size(), 3U);
  EXPECT_EQ(joined[0].figures.at("recall").at("rows").size(), 3U);
  EXPECT_EQ(joined[0].where, "a");
  EXPECT_EQ(joined[1].where, "c");
  EXPECT_EQ(joined[1].figures, other);
}

TEST(EvaluationPage, HoldsTablesAndCharts) {
  HtmlReport report("t");
  add_evaluation(report, everything(), "here");
  const std::string html = report.html();
  for (const char* part : {"Recall: q.jsonl", "33 to 64", "50.0 %", "Far tokens", "64 to 79 tokens",
                           "62.5 %", "Loss by how much of its window", "Right answers by distance",
                           "Perplexity", "In short", "kept, all"})
    expect_part(html, part);
  std::size_t charts = 0;
  for (std::size_t at = html.find("<figure"); at != std::string::npos;
       at = html.find("<figure", at + 1))
    ++charts;
  EXPECT_EQ(charts, 3U);
}

TEST(EvaluationPage, OnlyShowsWhatThereIs) {
  Json recall = everything();
  recall["rows"] = Json::array();
  recall.erase("far");
  HtmlReport report("t");
  add_evaluation(report, recall, "here");
  EXPECT_EQ(report.html().find("Perplexity"), std::string::npos);
  EXPECT_EQ(report.html().find("Far tokens"), std::string::npos);
  expect_part(report.html(), "Recall");
  EXPECT_THROW(add_evaluation(report, Json::array(), "here"), std::runtime_error);
}

}  // namespace
}  // namespace focus
