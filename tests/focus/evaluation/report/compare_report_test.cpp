#include "focus/evaluation/report/compare_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/files/durable_file.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/report/compare_recall.h"
#include "focus/evaluation/report/forgetting.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

TextRow row(const std::string& run, int seed, double perplexity) {
  TextRow row{.run = {.name = run, .seed = seed, .trainable_parameters = 7}};
  row.train_tokens_per_second = 10;
  row.train_peak_bytes = 100 * seed;
  row.split = "valid";
  row.attention = row.kind = "soft";
  row.routing = "carried";
  row.causal = true;
  row.perplexity = perplexity;
  row.pairs_attended = 0.5;
  row.largest_group = 0.25;
  row.eval_tokens_per_second = 20.0 * seed;
  return row;
}

TEST(CompareReport, PointsOfThePlaneOfTargetAndSource) {
  const auto of = [](const std::string& run, const char* split, const char* kind, double value) {
    TextRow r = row(run, 1, value);
    r.run.method = run == "LoRA" ? "lora" : "retrofit";
    r.split = split;
    r.kind = r.attention = kind;
    return r;
  };
  TextRow peeking = of("Focus", "target", "soft", 3);
  peeking.routing = "sequence";
  peeking.causal = false;
  const auto groups =
      group_rows({of("Focus", "target", "dense", 4), of("Focus", "source", "dense", 2),
                  of("LoRA", "target", "dense", 3), of("LoRA", "source", "dense", 5), peeking,
                  of("Focus", "target", "soft", 9)});
  const auto points = forgetting_points(groups, "target", "source");
  ASSERT_EQ(points.size(), 2u);  // soft is not causal, or has no source
  EXPECT_TRUE(points[0].is_base);
  EXPECT_FALSE(points[1].is_base);
  EXPECT_EQ(points[1].run, "LoRA");
  EXPECT_DOUBLE_EQ(points[1].target, std::log(3.0));
  EXPECT_DOUBLE_EQ(points[1].source, std::log(5.0));
  HtmlReport page("p");
  add_forgetting(page, groups, "target", "source");
  EXPECT_NE(page.html().find(fmt::format("{:+.4f}", std::log(4.0 / 3))), std::string::npos);
  EXPECT_NE(page.html().find(fmt::format("{:+.4f}", std::log(5.0 / 2))), std::string::npos);
  HtmlReport none("p");
  add_forgetting(none, groups, "test target", "test source");
  EXPECT_EQ(none.html(), HtmlReport("p").html());
}

TEST(CompareReport, MeanAndSpreadOverSeeds) {
  const auto groups = group_rows({row("a", 1, 2), row("b", 1, 9), row("a", 2, 4), row("a", 3, 6)});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].run, "a");
  EXPECT_EQ(groups[0].seeds, 3u);
  EXPECT_DOUBLE_EQ(groups[0].mean, 4);
  EXPECT_DOUBLE_EQ(groups[0].deviation, 2);
  EXPECT_DOUBLE_EQ(groups[0].least, 2);
  EXPECT_DOUBLE_EQ(groups[0].most, 6);
  EXPECT_DOUBLE_EQ(groups[0].pairs, 0.5);
  EXPECT_DOUBLE_EQ(groups[0].eval_rate, 40);
  EXPECT_DOUBLE_EQ(groups[0].peak_bytes, 300);
  EXPECT_EQ(groups[1].seeds, 1u);
  EXPECT_DOUBLE_EQ(groups[1].deviation, 0);
}

/// A run that has been evaluated, with one row; `causal` false: by a baseline that is not.
RunOutcome outcome(const std::string& name, const std::string& tokenizer, bool causal) {
  const EvaluationRow figures{
      .attention = {.name = "attention of " + name, .kind = "baseline", .causal = causal},
      .perplexity = 3.5,
      .bits_per_byte = 1.25,
      .tokens_scored = 299,
      .pairs_attended = 0.5,
      .tokens_per_second = 10.0};
  const TextEvaluation texts{
      .texts = {"book.txt"},
      .documents = 1,
      .bytes = 900,
      .tokenizer = {tokenizer, "f00d"},
      .windows = WindowEvaluation{.context = 64, .stride = 32, .rows = {figures}}};
  return {.name = name, .config = {}, .evaluation = {{"valid", texts}}};
}

std::string page_of(const std::vector<RunOutcome>& outcomes) {
  return compare_page({.title = "page"}, compared_rows(outcomes), outcomes);
}

TEST(CompareReport, ARowWithoutAKindSaysToEvaluateAgain) {
  auto old = row("a", 1, 2);
  old.kind.reset();
  try {
    group_rows({old});
    FAIL() << "took a row of an older version";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("run focus eval again"), std::string::npos);
  }
}

TEST(CompareReport, AHardRowIsNamedByItsKAndGate) {
  auto hard = row("a", 1, 2);
  hard.kind = "hard";
  hard.attention = "any words";
  hard.top_k = 2;
  hard.gate = "keep";
  const auto groups = group_rows({hard});
  EXPECT_EQ(groups[0].attention.top_k, 2);
  EXPECT_TRUE(groups[0].attention.keeps_affinity());
  EXPECT_EQ(groups[0].attention.routing_text(), "carried");
}

TEST(CompareReport, WhatAPerplexityIsOfStandsOnThePage) {
  const std::string of_bytes =
      "Perplexity of book.txt: 900 bytes, 299 tokens scored; tokenizer bytes f00d; context 64, "
      "stride 32.";
  const std::string warning =
      "Perplexities with different tokenizers or windows cannot be compared";
  const std::string one = page_of({outcome("a", "bytes", true), outcome("b", "bytes", true)});
  EXPECT_NE(one.find("<p>" + of_bytes), std::string::npos);
  EXPECT_EQ(one.find(warning), std::string::npos);
  const std::string two = page_of({outcome("a", "bytes", true), outcome("b", "bpe", true)});
  EXPECT_NE(two.find("<p>a: " + of_bytes), std::string::npos);
  EXPECT_NE(two.find("tokenizer bpe f00d"), std::string::npos);
  EXPECT_NE(two.find(warning), std::string::npos);
}

TEST(CompareReport, RecallOfOtherDistancesHasDashesWhereNoRowGaveThem) {
  const auto answers = [](const char* attention, std::int64_t from, std::int64_t to, double right) {
    RecallAnswerRow row;
    row.run = {.name = "a", .seed = 1};
    row.questions = "recall";
    row.documents = 2;
    row.attention = row.kind = attention;
    row.routing = "-";
    if (to > 0) row.from = from, row.to = to;
    row.answers = to > 0 ? 4 : 8;
    row.right = right;
    return row;
  };
  const std::vector<RecallAnswerRow> rows = {
      answers("dense", 0, 0, 0.75), answers("dense", 129, 256, 1), answers("dense", 1, 128, 0.5),
      answers("soft", 129, 256, 0.25)};
  EXPECT_EQ(recall_tables(rows),
            "recall: 2 documents, 8 answers\n"
            "run  attention  routing  seeds  correct  std  1 to 128  129 to 256\n"
            "a    dense      -            1   75.0 %    -    50.0 %     100.0 %\n"
            "a    soft       -            0        -    -         -      25.0 %\n\n");
}

TEST(CompareReport, ARivalThatIsNotCausalIsMarkedAndNotDrawn) {
  const std::vector<RunOutcome> outcomes = {outcome("sound", "bytes", true),
                                            outcome("peeking", "bytes", false)};
  const auto groups = group_rows(compared_rows(outcomes).texts);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].attention.routing_text(), "-");
  EXPECT_EQ(groups[1].attention.routing_text(), "not causal");
  EXPECT_DOUBLE_EQ(groups[1].bits_per_byte, 1.25);
  const std::string page = page_of(outcomes);
  EXPECT_NE(page.find("<td>attention of peeking</td><td>not causal</td>"), std::string::npos);
  const std::string charts = page.substr(page.find("<figure>"));
  EXPECT_NE(charts.find("attention of sound"), std::string::npos);
  EXPECT_EQ(charts.find("peeking"), std::string::npos);
}

/// What is wrong with the lines of a compare.jsonl; of right ones the rows of texts again.
std::string read_again(const std::string& lines) {
  const TempFolder folder;
  write_file_durably(folder / "compare.jsonl", std::string_view(lines));
  try {
    return rows_jsonl(structs_to_json(read_compared_rows(folder / "compare.jsonl").texts));
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    return text.substr(text.rfind('/') + 1);
  }
}

TEST(CompareReport, RowsThatWereWrittenAreReadAsTheyWere) {
  auto written = structs_to_json(compared_rows({outcome("a", "bytes", true)}).texts);
  const std::string text = rows_jsonl(written);
  EXPECT_EQ(read_again(text), text);
  // A column that an older version did not have is null.
  written[0].erase("nats_of_documents");
  EXPECT_EQ(read_again(rows_jsonl(written)), text);
  written[0]["perplexity"] = "low";
  EXPECT_EQ(read_again(rows_jsonl(written)),
            "compare.jsonl:1.perplexity: expected a number, found string");
  written[0].erase("split");
  written[0].erase("perplexity");
  EXPECT_NE(read_again(rows_jsonl(written)).find("compare.jsonl:1: not a row of a comparison"),
            std::string::npos);
  EXPECT_EQ(read_again("{\"run\":\"a\",\"seed\":1,\"questions\":\"recall\"}\n"),
            "compare.jsonl:1: \"hash\" is missing");
  EXPECT_NE(read_again("{\"step\":1}\n").find("compare.jsonl:1: not a row of a comparison"),
            std::string::npos);
  EXPECT_EQ(read_again(""), "compare.jsonl: has no rows of a comparison");
}

}  // namespace
}  // namespace focus
