#include "apps/compare/claims.h"

#include <gtest/gtest.h>

#include <cmath>

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

const std::string kPlan = R"(seeds: [1, 2]
common: {method: scratch, tokenizer: bytes, data: {train: [a.txt]}}
runs:
  - name: full
    attention: dense
  - name: focus
    attention: focus
eval: {texts: {target: [b.txt], source: [c.txt]}}
)";

/// kPlan with one claim: `focus` in soft attention is less than `full`.
ComparePlan plan_with(const std::string& more) {
  return read_compare_plan(kPlan + R"(claims:
  - claim: groups are better
    less: {run: focus, attention: soft}
    than: {run: full, attention: dense}
)" + more,
                           "c.yaml", {});
}

Json row(const std::string& run, int seed, const std::string& attention, double nats,
         const Json& documents = nullptr) {
  return {{"run", run},
          {"seed", seed},
          {"split", "target"},
          {"attention", attention},
          {"routing", attention == "soft" ? Json("carried") : Json()},
          {"perplexity", std::exp(nats)},
          {"kept_far", 0.5},
          {"nats_of_documents", documents}};
}

ClaimOutcome outcome_of(const std::string& more, const std::vector<Json>& rows) {
  const auto outcomes = claim_outcomes(plan_with(more), rows);
  EXPECT_EQ(outcomes.size(), 1u);
  return outcomes.at(0);
}

TEST(Claims, AreHeldAgainstPairsOfEqualSeeds) {
  // Each seed is lower by 0.1 and 0.2, though the seeds themselves differ by 1.
  const auto outcome = outcome_of("", {row("full", 1, "dense", 2), row("full", 2, "dense", 3),
                                       row("focus", 2, "soft", 2.8), row("focus", 1, "soft", 1.9)});
  ASSERT_EQ(outcome.differences.size(), 2u);
  EXPECT_NEAR(outcome.mean, -0.15, 1e-12);
  // t of one degree of freedom, deviation 0.1 / sqrt(2), over sqrt(2).
  EXPECT_NEAR(outcome.half_width, 12.706 * 0.05, 1e-9);
  EXPECT_EQ(outcome.verdict, Verdict::undecided);
  EXPECT_EQ(claim_rows({outcome})[0]["verdict"], "undecided");
}

TEST(Claims, AVerdictNeedsTheWholeInterval) {
  const auto verdict = [&](double first, double second, const std::string& more) {
    return outcome_of(more,
                      {row("full", 1, "dense", 2), row("full", 2, "dense", 2),
                       row("focus", 1, "soft", 2 + first), row("focus", 2, "soft", 2 + second)})
        .verdict;
  };
  EXPECT_EQ(verdict(-0.1, -0.101, ""), Verdict::held);
  EXPECT_EQ(verdict(0.1, 0.101, ""), Verdict::not_held);
  EXPECT_EQ(verdict(0, 0, ""), Verdict::not_held);
  EXPECT_EQ(verdict(0.1, 0.101, "    margin: 0.2\n"), Verdict::held);
  EXPECT_EQ(verdict(-0.1, -0.101, "    margin: -0.2\n"), Verdict::not_held);
}

TEST(Claims, ARunOfOneSeedStandsBesideEverySeedOfTheOther) {
  const auto outcome = outcome_of(
      "", {row("full", 1, "dense", 2), row("focus", 1, "soft", 1.9), row("focus", 2, "soft", 1.7)});
  ASSERT_EQ(outcome.differences.size(), 2u);
  EXPECT_NEAR(outcome.mean, -0.2, 1e-12);
}

TEST(Claims, OneSeedIsSaidBesideTheVerdict) {
  const auto outcome = outcome_of("", {row("full", 1, "dense", 2), row("focus", 1, "soft", 1.9)});
  EXPECT_EQ(outcome.verdict, Verdict::held);
  EXPECT_NE(claims_table({outcome}).find("held (one seed)"), std::string::npos);
}

TEST(Claims, DifferencesOfDocumentsAreMeansOverSeeds) {
  const auto outcome = outcome_of(
      "", {row("full", 1, "dense", 2, {1.0, 3.0}), row("focus", 1, "soft", 2, {0.5, 3.5}),
           row("focus", 2, "soft", 2, {0.7, 3.1})});
  ASSERT_EQ(outcome.of_documents.size(), 2u);
  EXPECT_NEAR(outcome.of_documents[0], -0.4, 1e-12);
  EXPECT_NEAR(outcome.of_documents[1], 0.3, 1e-12);
}

TEST(Claims, OtherColumnsAndOtherRowsAreNot) {
  const auto other = outcome_of("    figure: kept_far\n    margin: 0.1\n",
                                {row("full", 1, "dense", 2), row("focus", 1, "soft", 9)});
  EXPECT_EQ(other.verdict, Verdict::held);
  EXPECT_EQ(other.mean, 0);
  EXPECT_TRUE(other.of_documents.empty());
  EXPECT_EQ(outcome_of("    on: source\n", {row("full", 1, "dense", 2), row("focus", 1, "soft", 1)})
                .verdict,
            Verdict::not_measured);
}

TEST(Claims, WhatHasNoRowIsNotMeasuredAndSaysWhich) {
  const auto none = outcome_of("", {row("full", 1, "dense", 2)});
  EXPECT_EQ(none.verdict, Verdict::not_measured);
  EXPECT_EQ(none.reason, "no row focus, soft");
  auto peeking = row("focus", 1, "soft", 1);
  peeking["routing"] = "sequence";
  const auto two =
      outcome_of("", {row("full", 1, "dense", 2), row("focus", 1, "soft", 2), peeking});
  EXPECT_EQ(two.verdict, Verdict::not_measured);
  EXPECT_EQ(two.reason, "several rows are soft: say routing");
}

TEST(Claims, WhatCannotBeTestedSaysWhy) {
  const ComparePlan plan = read_compare_plan(
      kPlan + "claims: [{claim: it scales, claimed: 70B, not_testable: too large}]\n", "c.yaml",
      {});
  const auto outcomes = claim_outcomes(plan, {});
  EXPECT_EQ(outcomes[0].verdict, Verdict::not_testable);
  HtmlReport page("page");
  add_claims(page, outcomes);
  EXPECT_NE(page.html().find("not testable here"), std::string::npos);
  EXPECT_NE(page.html().find("too large"), std::string::npos);
}

TEST(Claims, OfRunsAndTextsThatAreNotThereAreRefused) {
  try {
    read_compare_plan(kPlan + R"(claims:
  - claim: a
    less: {run: nobody, attention: soft}
    than: {run: full, attention: dense}
  - claim: b
    less: {run: full, attention: dense}
    than: {run: full, attention: dense}
    on: valid
  - claimed: nothing
  - claim: c
    not_testable: why
    less: {run: full}
  - {claim: d, clam: e}
)",
                      "c.yaml", {});
    FAIL() << "took claims about nothing";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "c.yaml:10: claims: less.run: wanted the name of a run, came nobody\n"
                 "c.yaml:13: claims: on: wanted one of target, source, came valid\n"
                 "c.yaml:17: claims: every claim needs its words, claim\n"
                 "c.yaml:18: claims: not_testable stands in the place of less and than\n"
                 "c.yaml:21: clam: unknown key; did you mean claim?");
  }
}

}  // namespace
}  // namespace focus::app
