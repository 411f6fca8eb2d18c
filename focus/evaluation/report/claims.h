#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "focus/evaluation/report/compare_rows.h"
#include "focus/evaluation/report/html_report.h"

// Claims of a comparison's config beside what its rows say of them.
namespace focus {

/// A row of a comparison, as its table names it.
struct ClaimedRow {
  std::string run = {}, attention = {}, routing = {};

  /// "LoRA r=4, dense"
  std::string text() const;

  template <class F>
  void visit(F&& f) {
    f("run", run, "name of the run, with the values of a sweep");
    f("attention", attention, "attention as in the table, such as dense or hard k=2");
    f("routing", routing, "routing as in the table, if two rows have the same attention");
  }
};

/// That a figure of one row is less than that of another, or why that cannot be found out here.
struct Claim {
  std::string claim = {}, claimed = {};
  ClaimedRow less = {}, than = {};
  std::string on = {}, figure = "nats";
  double margin = 0;
  std::string not_testable = {};

  template <class F>
  void visit(F&& f) {
    f("claim", claim, "the claim, in words");
    f("claimed", claimed, "source of the claim, and its figures");
    f("less", less, "the row with the smaller figure");
    f("than", than, "the row with the larger figure");
    f("on", on, "valid, target, source, a task or questions of eval; empty: the first of them");
    f("figure", figure, "nats (per token), or another column of compare.jsonl's rows");
    f("margin", margin,
      "by how much `less` may exceed `than`; if negative, by how much it must be smaller",
      {-1e12, 1e12});
    f("not_testable", not_testable, "instead of rows: why they cannot test the claim");
  }
};

/// Of a claim that one figure is less than another by more than nothing, or than minus its margin.
enum class Verdict { held, not_held, undecided, not_measured, not_testable };
constexpr auto enum_names(Verdict) {
  return std::array<std::string_view, 5>{"held", "not held", "undecided", "not measured",
                                         "not testable here"};
}

/// What became of a claim.
struct ClaimOutcome {
  Claim claim;
  /// figure(less) - figure(than), one for each pair of seeds: the same seed of both, or where one
  /// of them has a single seed, that beside every seed of the other.
  std::vector<double> differences = {};
  double mean = 0;
  /// Half of the 95 % interval of the mean over seeds, by Student's t with n - 1 degrees of
  /// freedom; 0 for fewer than two pairs.
  double half_width = 0;
  /// Of figure nats on a split of several documents: the same difference in each, in nats a token,
  /// means over the pairs. Empty where the evaluations do not say it.
  std::vector<double> of_documents = {};
  Verdict verdict = Verdict::not_measured;
  std::string reason = {};  // of not measured and not testable
  std::string asked = {};   // the question to the rows, and why there is no answer

  /// A line of compare.jsonl; "claim" is what no other lines have.
  void visit(auto&& f) {
    auto seeds = static_cast<std::int64_t>(differences.size());
    std::optional<double> difference, half;
    if (seeds > 0) difference = mean;
    if (seeds > 1) half = half_width;
    f("claim", claim.claim);
    f("claimed", claim.claimed);
    f("asked", asked);
    f("difference", difference);
    f("half_width", half);
    f("seeds", seeds);
    f("of_documents", of_documents);
    f("verdict", verdict);
  }
};

/// In the order of the claims; one whose rows are not there is not measured.
std::vector<ClaimOutcome> claim_outcomes(const std::vector<Claim>& claims,
                                         const ComparedRows& rows);

/// For a terminal; empty without claims.
std::string claims_table(const std::vector<ClaimOutcome>& outcomes);
/// The same on a page, in full; nothing without claims.
void add_claims(HtmlReport& page, const std::vector<ClaimOutcome>& outcomes);

}  // namespace focus
