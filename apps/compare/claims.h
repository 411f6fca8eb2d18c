#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/compare/compare_run.h"
#include "focus/report/html_report.h"

// Claims of a comparison's recipe beside what its rows say of them.
namespace focus::app {

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
};

/// In the plan's order. `rows` are ComparedRows::all(); a claim whose rows are not among them is
/// not measured.
std::vector<ClaimOutcome> claim_outcomes(const ComparePlan& plan,
                                         const std::vector<nlohmann::ordered_json>& rows);

/// One object for each claim; "claim" is what no other rows have.
std::vector<nlohmann::ordered_json> claim_rows(const std::vector<ClaimOutcome>& outcomes);

/// For a terminal; empty without claims.
std::string claims_table(const std::vector<ClaimOutcome>& outcomes);
/// The same on a page, in full; nothing without claims.
void add_claims(HtmlReport& page, const std::vector<ClaimOutcome>& outcomes);

}  // namespace focus::app
