#include "apps/compare/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "apps/compare/seed_rows.h"
#include "data/settings/recipe_values.h"
#include "focus/evaluation/attention_row.h"

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

/// By seed; of a seed that two rows of the run fit, the last, and `several` says so.
struct Side {
  std::map<std::int64_t, const Json*> rows;
  bool several = false;
};

/// Whether a row is of the claim's texts, benchmark or questions; answers at all distances alone.
bool is_on(const Json& row, const std::string& on) {
  if (row.contains("questions") && !row["to"].is_null()) return false;
  return std::ranges::any_of(std::array{"split", "task", "questions"},
                             [&](const char* key) { return text_of(row, key) == on; });
}

/// Rows of benchmarks and answers say "sequence (not causal)" where those of texts say "sequence".
bool has_routing(const Json& row, const std::string& wanted) {
  const std::string routing = text_of(row, "routing");
  return wanted.empty() || routing == wanted || routing.starts_with(wanted + " (");
}

Side side_of(const std::vector<Json>& rows, const ClaimedRow& claimed, const std::string& on) {
  Side side;
  for (const Json& row : rows) {
    if (text_of(row, "run") != claimed.run || !is_on(row, on)) continue;
    if (text_of(row, "attention") != claimed.attention) continue;
    if (!has_routing(row, claimed.routing)) continue;
    const Json*& place = side.rows[row["seed"].get<std::int64_t>()];
    side.several = side.several || place != nullptr;
    place = &row;
  }
  return side;
}

using Pairs = std::vector<std::pair<const Json*, const Json*>>;

Pairs pairs_of(const Side& less, const Side& than) {
  Pairs pairs;
  for (const auto& [seed, row] : less.rows) {
    if (than.rows.size() == 1) {
      pairs.emplace_back(row, than.rows.begin()->second);
    } else if (less.rows.size() > 1) {
      if (const auto same = than.rows.find(seed); same != than.rows.end())
        pairs.emplace_back(row, same->second);
    }
  }
  if (less.rows.size() == 1 && than.rows.size() > 1)
    for (const auto& [seed, row] : than.rows) pairs.emplace_back(less.rows.begin()->second, row);
  return pairs;
}

std::optional<double> figure_of(const Json& row, const std::string& figure) {
  const std::string key = figure == "nats" ? "perplexity" : figure;
  if (!row.contains(key) || !row[key].is_number()) return {};
  const auto value = row[key].get<double>();
  return figure == "nats" ? std::log(value) : value;
}

/// t of a two-sided 95 % interval; beyond the table to a thousandth.
double student_t(std::size_t degrees) {
  constexpr std::array kTable = {12.706, 4.303, 3.182, 2.776, 2.571,
                                 2.447,  2.365, 2.306, 2.262, 2.228};
  return degrees <= kTable.size() ? kTable.at(degrees - 1)
                                  : 1.96 + 2.5 / static_cast<double>(degrees);
}

/// Means over the pairs of each document's difference; empty where a row does not have them, or
/// another number of them.
std::vector<double> difference_of_documents(const Pairs& pairs) {
  std::vector<double> sums;
  for (const auto& [less, than] : pairs) {
    const Json a = less->value("nats_of_documents", Json()),
               b = than->value("nats_of_documents", Json());
    if (!a.is_array() || !b.is_array() || a.size() != b.size()) return {};
    if (sums.empty()) sums.resize(a.size());
    if (sums.size() != a.size()) return {};
    for (std::size_t i = 0; i < a.size(); ++i)
      sums[i] += (a[i].get<double>() - b[i].get<double>()) / static_cast<double>(pairs.size());
  }
  return sums;
}

ClaimOutcome outcome_of(const Claim& claim, const std::vector<Json>& rows) {
  ClaimOutcome outcome{.claim = claim};
  if (!claim.not_testable.empty()) {
    outcome.verdict = Verdict::not_testable;
    outcome.reason = claim.not_testable;
    return outcome;
  }
  const Side less = side_of(rows, claim.less, claim.on), than = side_of(rows, claim.than, claim.on);
  for (const auto& [side, claimed] : {std::pair(&less, &claim.less), {&than, &claim.than}}) {
    if (side->several)
      outcome.reason = fmt::format("several rows are {}: say routing", claimed->attention);
    if (side->rows.empty()) outcome.reason = fmt::format("no row {}", claimed->text());
  }
  if (!outcome.reason.empty()) return outcome;
  const Pairs pairs = pairs_of(less, than);
  for (const auto& [a, b] : pairs) {
    const auto x = figure_of(*a, claim.figure), y = figure_of(*b, claim.figure);
    if (!x || !y) {
      outcome.differences.clear();
      outcome.reason = fmt::format("rows without {}", claim.figure);
      return outcome;
    }
    outcome.differences.push_back(*x - *y);
  }
  const std::size_t n = outcome.differences.size();
  if (n == 0) {
    outcome.reason = "no seed that both have";
    return outcome;
  }
  const Spread spread = spread_of(outcome.differences);
  outcome.mean = spread.mean;
  if (n > 1)
    outcome.half_width = student_t(n - 1) * spread.deviation / std::sqrt(static_cast<double>(n));
  if (claim.figure == "nats") outcome.of_documents = difference_of_documents(pairs);
  if (outcome.mean + outcome.half_width < claim.margin)
    outcome.verdict = Verdict::held;
  else if (outcome.mean - outcome.half_width >= claim.margin)
    outcome.verdict = Verdict::not_held;
  else
    outcome.verdict = Verdict::undecided;
  return outcome;
}

std::string difference_text(const ClaimOutcome& outcome) {
  if (outcome.differences.empty()) return "-";
  return outcome.differences.size() == 1
             ? fmt::format("{:+.4f}", outcome.mean)
             : fmt::format("{:+.4f} +-{:.4f}", outcome.mean, outcome.half_width);
}

std::string verdict_text(const ClaimOutcome& outcome) {
  const std::string name(value_text(outcome.verdict));
  return outcome.differences.size() == 1 ? name + " (one seed)" : name;
}

/// "target, nats: A, dense < B, soft + 0.01", and why there is nothing to say of it.
std::string question_of(const ClaimOutcome& outcome) {
  const Claim& claim = outcome.claim;
  if (outcome.verdict == Verdict::not_testable) return outcome.reason;
  const std::string by = claim.margin == 0  ? ""
                         : claim.margin > 0 ? fmt::format(" + {}", claim.margin)
                                            : fmt::format(" - {}", -claim.margin);
  return fmt::format("{}, {}: {} < {}{}{}{}", claim.on, claim.figure, claim.less.text(),
                     claim.than.text(), by, outcome.reason.empty() ? "" : "; ", outcome.reason);
}

/// "-0.0500 to -0.0400, std 0.0050, of 2"
std::string documents_text(const std::vector<double>& documents) {
  if (documents.size() < 2) return "-";
  const auto [least, most] = std::ranges::minmax(documents);
  return fmt::format("{:+.4f} to {:+.4f}, std {:.4f}, of {}", least, most,
                     spread_of(documents).deviation, documents.size());
}

Table table_of(const std::vector<ClaimOutcome>& outcomes) {
  Table table{.header = {"claim", "verdict", "difference", "seeds"}};
  for (const ClaimOutcome& outcome : outcomes)
    table.rows.push_back(
        {outcome.claim.claim, verdict_text(outcome), difference_text(outcome),
         outcome.differences.empty() ? "-" : fmt::format("{}", outcome.differences.size())});
  return table;
}

}  // namespace

std::vector<ClaimOutcome> claim_outcomes(const ComparePlan& plan, const std::vector<Json>& rows) {
  std::vector<ClaimOutcome> outcomes;
  for (const Claim& claim : plan.claims) outcomes.push_back(outcome_of(claim, rows));
  return outcomes;
}

std::vector<Json> claim_rows(const std::vector<ClaimOutcome>& outcomes) {
  std::vector<Json> rows;
  for (const ClaimOutcome& outcome : outcomes) {
    const Claim& claim = outcome.claim;
    const bool known = !outcome.differences.empty();
    Json row = {{"claim", claim.claim}, {"claimed", claim.claimed}};
    row["asked"] = question_of(outcome);
    row["difference"] = known ? Json(outcome.mean) : Json();
    row["half_width"] = outcome.differences.size() > 1 ? Json(outcome.half_width) : Json();
    row["seeds"] = outcome.differences.size();
    row["of_documents"] = outcome.of_documents;
    row["verdict"] = value_text(outcome.verdict);
    rows.push_back(row);
  }
  return rows;
}

std::string claims_table(const std::vector<ClaimOutcome>& outcomes) {
  if (outcomes.empty()) return "";
  Table table = table_of(outcomes);
  table.caption = "claims";
  return plain_text(table, 2) + "\n";
}

void add_claims(HtmlReport& page, const std::vector<ClaimOutcome>& outcomes) {
  if (outcomes.empty()) return;
  page.heading("Claims");
  page.paragraph(
      "Each claim as a question to the rows below: is the figure of one less than that of the "
      "other, "
      "by more or less than a margin where one is said. difference: the mean over pairs of equal "
      "seeds, and half of its 95 % interval by Student's t. Held where the whole interval is below "
      "the margin, not held where none of it is, else undecided; with one seed there is no "
      "interval, "
      "and the verdict says so. nats are those of a token, the logarithm of the perplexity. by "
      "document: the least and the largest difference of a document, and their standard "
      "deviation.");
  Table table = table_of(outcomes);
  table.header.insert(table.header.end(),
                      {"by document", "claimed elsewhere", "asked of the rows"});
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Claim& claim = outcomes[i].claim;
    table.rows[i].insert(table.rows[i].end(),
                         {documents_text(outcomes[i].of_documents),
                          claim.claimed.empty() ? "-" : claim.claimed, question_of(outcomes[i])});
  }
  page.table(table);
}

}  // namespace focus::app
