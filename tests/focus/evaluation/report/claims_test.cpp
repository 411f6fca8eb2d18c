#include "focus/evaluation/report/claims.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/settings/struct_json.h"

namespace focus {
namespace {

/// `focus` in soft attention is less than `full` on the target's texts.
const Claim kClaim = {.claim = "groups are better",
                      .less = {.run = "focus", .attention = "soft"},
                      .than = {.run = "full", .attention = "dense"},
                      .on = "target"};

TextRow row(const std::string& run, int seed, const std::string& attention, double nats,
            const std::optional<std::vector<double>>& documents = {}) {
  TextRow row{.run = {.name = run, .seed = seed}};
  row.split = "target";
  row.attention = attention;
  if (attention == "soft") row.routing = "carried";
  row.perplexity = std::exp(nats);
  row.kept_far = 0.5;
  row.nats_of_documents = documents;
  return row;
}

ClaimOutcome outcome_of(const std::vector<TextRow>& rows, const Claim& claim = kClaim) {
  const auto outcomes = claim_outcomes({claim}, {.texts = rows});
  EXPECT_EQ(outcomes.size(), 1u);
  return outcomes.at(0);
}

TEST(Claims, AreHeldAgainstPairsOfEqualSeeds) {
  // Each seed is lower by 0.1 and 0.2, though the seeds themselves differ by 1.
  const auto outcome = outcome_of({row("full", 1, "dense", 2), row("full", 2, "dense", 3),
                                   row("focus", 2, "soft", 2.8), row("focus", 1, "soft", 1.9)});
  ASSERT_EQ(outcome.differences.size(), 2u);
  EXPECT_NEAR(outcome.mean, -0.15, 1e-12);
  // t of one degree of freedom, deviation 0.1 / sqrt(2), over sqrt(2).
  EXPECT_NEAR(outcome.half_width, 12.706 * 0.05, 1e-9);
  EXPECT_EQ(outcome.verdict, Verdict::undecided);
  EXPECT_EQ(struct_to_json(outcome)["verdict"], "undecided");
}

TEST(Claims, AVerdictNeedsTheWholeInterval) {
  const auto verdict = [&](double first, double second, double margin) {
    Claim claim = kClaim;
    claim.margin = margin;
    return outcome_of({row("full", 1, "dense", 2), row("full", 2, "dense", 2),
                       row("focus", 1, "soft", 2 + first), row("focus", 2, "soft", 2 + second)},
                      claim)
        .verdict;
  };
  EXPECT_EQ(verdict(-0.1, -0.101, 0), Verdict::held);
  EXPECT_EQ(verdict(0.1, 0.101, 0), Verdict::not_held);
  EXPECT_EQ(verdict(0, 0, 0), Verdict::not_held);
  EXPECT_EQ(verdict(0.1, 0.101, 0.2), Verdict::held);
  EXPECT_EQ(verdict(-0.1, -0.101, -0.2), Verdict::not_held);
}

TEST(Claims, ARunOfOneSeedStandsBesideEverySeedOfTheOther) {
  const auto outcome = outcome_of(
      {row("full", 1, "dense", 2), row("focus", 1, "soft", 1.9), row("focus", 2, "soft", 1.7)});
  ASSERT_EQ(outcome.differences.size(), 2u);
  EXPECT_NEAR(outcome.mean, -0.2, 1e-12);
}

TEST(Claims, OneSeedIsSaidBesideTheVerdict) {
  const auto outcome = outcome_of({row("full", 1, "dense", 2), row("focus", 1, "soft", 1.9)});
  EXPECT_EQ(outcome.verdict, Verdict::held);
  EXPECT_NE(claims_table({outcome}).find("held (one seed)"), std::string::npos);
}

TEST(Claims, DifferencesOfDocumentsAreMeansOverSeeds) {
  const auto outcome = outcome_of({row("full", 1, "dense", 2, std::vector{1.0, 3.0}),
                                   row("focus", 1, "soft", 2, std::vector{0.5, 3.5}),
                                   row("focus", 2, "soft", 2, std::vector{0.7, 3.1})});
  ASSERT_EQ(outcome.of_documents.size(), 2u);
  EXPECT_NEAR(outcome.of_documents[0], -0.4, 1e-12);
  EXPECT_NEAR(outcome.of_documents[1], 0.3, 1e-12);
}

TEST(Claims, OtherColumnsAndOtherRowsAreNot) {
  const std::vector<TextRow> rows = {row("full", 1, "dense", 2), row("focus", 1, "soft", 9)};
  Claim claim = kClaim;
  claim.figure = "kept_far";
  claim.margin = 0.1;
  const auto other = outcome_of(rows, claim);
  EXPECT_EQ(other.verdict, Verdict::held);
  EXPECT_EQ(other.mean, 0);
  EXPECT_TRUE(other.of_documents.empty());
  claim = kClaim;
  claim.on = "source";
  EXPECT_EQ(outcome_of(rows, claim).verdict, Verdict::not_measured);
}

TEST(Claims, MayBeOfBenchmarksAndAnswers) {
  ComparedRows rows;
  for (const auto& [run, share] : {std::pair("full", 0.5), {"focus", 0.4}}) {
    TaskScoreRow& task = rows.tasks.emplace_back();
    task.run = {.name = run, .seed = 1};
    task.task = "piqa";
    task.figures[task_figure("acc")] = Estimate{share, 0.1};
    RecallAnswerRow& answers = rows.recall.emplace_back();
    answers.run = task.run;
    answers.questions = "recall";
    answers.right = share + 0.1;
    answers.attention = task.attention = run == std::string("full") ? "dense" : "soft";
    RecallAnswerRow bucket = answers;
    bucket.from = 1;
    bucket.to = 32;
    bucket.right = 0;
    rows.recall.push_back(bucket);
  }
  Claim claim = kClaim;
  claim.on = "piqa";
  claim.figure = "acc";
  EXPECT_NEAR(claim_outcomes({claim}, rows)[0].mean, -0.1, 1e-12);
  claim.on = "recall";
  claim.figure = "right";
  EXPECT_NEAR(claim_outcomes({claim}, rows)[0].mean, -0.1, 1e-12);
  claim.figure = "acc";
  EXPECT_EQ(claim_outcomes({claim}, rows)[0].reason, "rows without acc");
}

TEST(Claims, WhatHasNoRowIsNotMeasuredAndSaysWhich) {
  const auto none = outcome_of({row("full", 1, "dense", 2)});
  EXPECT_EQ(none.verdict, Verdict::not_measured);
  EXPECT_EQ(none.reason, "no row focus, soft");
  auto peeking = row("focus", 1, "soft", 1);
  peeking.routing = "sequence";
  const auto two = outcome_of({row("full", 1, "dense", 2), row("focus", 1, "soft", 2), peeking});
  EXPECT_EQ(two.verdict, Verdict::not_measured);
  EXPECT_EQ(two.reason, "several rows are soft: add routing");
}

TEST(Claims, WhatCannotBeTestedSaysWhy) {
  const auto outcome = outcome_of({}, {.claim = "it scales", .not_testable = "too large"});
  EXPECT_EQ(outcome.verdict, Verdict::not_testable);
  HtmlReport page("page");
  add_claims(page, {outcome});
  EXPECT_NE(page.html().find("not testable here"), std::string::npos);
  EXPECT_NE(page.html().find("too large"), std::string::npos);
}

}  // namespace
}  // namespace focus
