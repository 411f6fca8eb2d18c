#include "focus/training/compare/compare_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/settings/struct_json.h"

namespace focus {
namespace {

TextRow row(const std::string& run, int seed, double perplexity) {
  TextRow row{.run = {.name = run, .seed = seed, .trainable_parameters = 7},
              .train_tokens_per_second = 10,
              .train_peak_bytes = 100 * seed,
              .split = "valid"};
  row.row.attention = {.name = "soft", .kind = AttentionKind::soft, .routing = "carried"};
  row.row.perplexity = perplexity;
  row.row.pairs_attended = 0.5;
  row.row.largest_group = 0.25;
  row.row.tokens_per_second = 20.0 * seed;
  return row;
}

TEST(CompareReport, PointsOfThePlaneOfTargetAndSource) {
  const auto of = [](const std::string& run, const char* split, AttentionKind kind, double value) {
    TextRow r = row(run, 1, value);
    r.run.method = run == "LoRA" ? "lora" : "retrofit";
    r.split = split;
    r.row.attention = {.name = value_text(kind), .kind = kind};
    return r;
  };
  constexpr auto dense = AttentionKind::dense, soft = AttentionKind::soft;
  TextRow peeking = of("Focus", "target", soft, 3);
  peeking.row.attention.routing = "sequence";
  peeking.row.attention.causal = false;
  ComparedRows rows{.texts = {of("Focus", "target", dense, 4), of("Focus", "source", dense, 2),
                              of("LoRA", "target", dense, 3), of("LoRA", "source", dense, 5),
                              peeking, of("Focus", "target", soft, 9)}};
  const std::string page = compare_page({.title = "p"}, 0, rows, {});
  const std::string plane = page.substr(page.find(">learnt<"), 1000);
  const std::string table = plane.substr(0, plane.find("</table>"));
  // The base and LoRA: soft is not causal, or has no source.
  EXPECT_NE(table.find("<td>base</td>"), std::string::npos) << table;
  EXPECT_NE(table.find("<td>LoRA</td>"), std::string::npos) << table;
  EXPECT_EQ(table.find("soft"), std::string::npos) << table;
  for (const double loss : {std::log(4.0), std::log(2.0), std::log(3.0), std::log(5.0)})
    EXPECT_NE(table.find(fmt::format("{:.4f}", loss)), std::string::npos) << table;
  for (const double change : {std::log(4.0 / 3), std::log(5.0 / 2)})
    EXPECT_NE(table.find(fmt::format("{:+.4f}", change)), std::string::npos) << table;
  rows.texts = {row("a", 1, 2)};
  EXPECT_EQ(compare_page({.title = "p"}, 0, rows, {}).find("forgetting"), std::string::npos);
}

TEST(OverSeeds, EachNumberOfARowHasItsMeanAndSpread) {
  TextRow third = row("a", 3, 6);
  third.row.kl = 1;
  const auto rows = text_rows_over_seeds({row("a", 1, 2), row("b", 1, 9), row("a", 2, 4), third});
  ASSERT_EQ(rows.size(), 2u);
  const OverSeeds<TextRow>& a = rows[0];
  EXPECT_EQ(a.mean.run.name, "a");
  EXPECT_EQ(a.rows.size(), 3u);
  EXPECT_DOUBLE_EQ(a.mean.row.perplexity, 4);
  const auto losses = a.each([](const TextRow& r) { return r.row.perplexity; });
  EXPECT_EQ(losses, (std::vector<double>{2, 4, 6}));
  EXPECT_DOUBLE_EQ(standard_deviation(losses), 2);
  EXPECT_DOUBLE_EQ(a.mean.row.pairs_attended, 0.5);
  EXPECT_DOUBLE_EQ(a.mean.row.tokens_per_second.value(), 40);
  EXPECT_EQ(a.mean.run.trainable_parameters, 7);
  EXPECT_FALSE(a.mean.row.kl) << "not every seed has it";
  EXPECT_EQ(a.mean.row.attention, third.row.attention);
  EXPECT_EQ(rows[1].rows.size(), 1u);
  EXPECT_DOUBLE_EQ(standard_deviation({7}), 0);
}

/// A run that has been evaluated, with one row; `causal` false: by a baseline that is not.
RunOutcome outcome(const std::string& name, const std::string& tokenizer, bool causal) {
  const Row figures{.attention = {.name = "attention of " + name,
                                  .kind = AttentionKind::baseline,
                                  .causal = causal},
                    .perplexity = 3.5,
                    .bits_per_byte = 1.25,
                    .tokens_scored = 299,
                    .pairs_attended = 0.5,
                    .tokens_per_second = 10.0};
  const TextEvaluation texts{.texts = {"book.txt"},
                             .documents = 1,
                             .bytes = 900,
                             .tokenizer = {tokenizer, "f00d"},
                             .context = 64,
                             .stride = 32,
                             .rows = {figures}};
  return {.name = name, .config = {}, .evaluation = {{"valid", texts}}};
}

std::string page_of(const std::vector<RunOutcome>& outcomes) {
  return compare_page({.title = "page"}, 0, compared_rows(outcomes), outcomes);
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
    AnswersRow row{.run = {.name = "a", .seed = 1},
                   .questions = "recall",
                   .documents = 2,
                   .attention = {.name = attention},
                   .figures = {.answers = to > 0 ? 4 : 8, .right = right}};
    if (to > 0) row.from = from, row.to = to;
    return row;
  };
  const ComparedRows rows{.recall = {answers("dense", 0, 0, 0.75), answers("dense", 129, 256, 1),
                                     answers("dense", 1, 128, 0.5),
                                     answers("soft", 129, 256, 0.25)}};
  EXPECT_EQ(compare_table(rows),
            "recall: 2 documents, 8 answers\n"
            "run  attention  routing  seeds  correct  std  1 to 128  129 to 256\n"
            "a    dense      -            1   75.0 %    -    50.0 %     100.0 %\n"
            "a    soft       -            0        -    -         -      25.0 %\n\n");
}

TEST(CompareReport, ABaselineThatIsNotCausalIsMarkedAndNotDrawn) {
  const std::string page =
      page_of({outcome("sound", "bytes", true), outcome("peeking", "bytes", false)});
  EXPECT_NE(page.find("<td>attention of peeking</td><td>not causal</td>"), std::string::npos);
  const std::string charts = page.substr(page.find("<figure>"));
  EXPECT_NE(charts.find("attention of sound"), std::string::npos);
  EXPECT_EQ(charts.find("peeking"), std::string::npos);
}

TEST(CompareRows, CsvHasEachColumnInEachRow) {
  RunOutcome failed = outcome("b", "bytes", true);
  failed.error = "out of memory";
  const auto rows = struct_to_json(compared_rows({outcome("a", "bytes", true), failed}).texts);
  EXPECT_EQ(rows[1].at("error"), "out of memory");
  EXPECT_FALSE(rows[1].contains("split"));
  const std::string csv = rows_csv(rows);
  EXPECT_NE(csv.find("\nb,"), std::string::npos) << csv;
  EXPECT_EQ(std::ranges::count(csv.substr(0, csv.find('\n')), ','),
            std::ranges::count(csv.substr(csv.find("\nb,") + 1), ','));
}

}  // namespace
}  // namespace focus
