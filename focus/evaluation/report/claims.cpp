#include "focus/evaluation/report/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "data/settings/struct_json.h"
#include "focus/evaluation/report/spread.h"

namespace focus {
namespace {

/// What a row says to a claim.
struct ClaimedFigures {
  std::optional<double> figure = {};
  std::vector<double> nats_of_documents = {};
};

/// By seed; of a seed that two rows of the run fit, the last, and `several` says so.
struct Side {
  std::map<std::int64_t, ClaimedFigures> rows;
  bool several = false;
};

/// Whether a row is of the claim's texts, benchmark or questions; answers at all distances alone.
bool is_on(const TextRow& row, const std::string& on) { return row.split == on; }
bool is_on(const TaskScoreRow& row, const std::string& on) { return row.task == on; }
bool is_on(const RecallAnswerRow& row, const std::string& on) {
  return row.questions == on && !row.to;
}

/// Rows of benchmarks and answers say "sequence (not causal)" where those of texts say "sequence".
bool has_routing(const std::optional<std::string>& routing, const std::string& wanted) {
  return wanted.empty() || routing == wanted || (routing && routing->starts_with(wanted + " ("));
}

/// A claim may name any column that is a number.
template <class Row>
ClaimedFigures claimed_figures(const Row& row, const std::string& figure) {
  const bool nats = figure == "nats";
  const nlohmann::ordered_json columns = struct_to_json(row);
  ClaimedFigures figures;
  const auto found = columns.find(nats ? "perplexity" : figure);
  if (found != columns.end() && found->is_number()) figures.figure = found->get<double>();
  if (nats && figures.figure) figures.figure = std::log(*figures.figure);
  if constexpr (std::is_same_v<Row, TextRow>)
    figures.nats_of_documents = row.nats_of_documents.value_or(std::vector<double>());
  return figures;
}

Side side_of(const ComparedRows& rows, const ClaimedRow& claimed, const Claim& claim) {
  Side side;
  rows.for_each_kind([&](const auto& of_kind) {
    for (const auto& row : of_kind) {
      if (row.run.name != claimed.run || !is_on(row, claim.on)) continue;
      if (row.attention != claimed.attention || !has_routing(row.routing, claimed.routing))
        continue;
      const auto [place, is_new] =
          side.rows.insert_or_assign(row.run.seed, claimed_figures(row, claim.figure));
      side.several = side.several || !is_new;
    }
  });
  return side;
}

using Pairs = std::vector<std::pair<const ClaimedFigures*, const ClaimedFigures*>>;

Pairs pairs_of(const Side& less, const Side& than) {
  Pairs pairs;
  for (const auto& [seed, row] : less.rows) {
    if (than.rows.size() == 1) {
      pairs.emplace_back(&row, &than.rows.begin()->second);
    } else if (less.rows.size() > 1) {
      if (const auto same = than.rows.find(seed); same != than.rows.end())
        pairs.emplace_back(&row, &same->second);
    }
  }
  if (less.rows.size() == 1 && than.rows.size() > 1)
    for (const auto& [seed, row] : than.rows) pairs.emplace_back(&less.rows.begin()->second, &row);
  return pairs;
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
    const std::vector<double>&a = less->nats_of_documents, &b = than->nats_of_documents;
    if (sums.empty()) sums.resize(a.size());
    if (a.empty() || a.size() != b.size() || sums.size() != a.size()) return {};
    for (std::size_t i = 0; i < a.size(); ++i)
      sums[i] += (a[i] - b[i]) / static_cast<double>(pairs.size());
  }
  return sums;
}

ClaimOutcome outcome_of(const Claim& claim, const ComparedRows& rows) {
  ClaimOutcome outcome{.claim = claim};
  if (!claim.not_testable.empty()) {
    outcome.verdict = Verdict::not_testable;
    outcome.reason = claim.not_testable;
    return outcome;
  }
  const Side less = side_of(rows, claim.less, claim), than = side_of(rows, claim.than, claim);
  for (const auto& [side, claimed] : {std::pair(&less, &claim.less), {&than, &claim.than}}) {
    if (side->several)
      outcome.reason = fmt::format("several rows are {}: add routing", claimed->attention);
    if (side->rows.empty()) outcome.reason = fmt::format("no row {}", claimed->text());
  }
  if (!outcome.reason.empty()) return outcome;
  const Pairs pairs = pairs_of(less, than);
  for (const auto& [a, b] : pairs) {
    if (!a->figure || !b->figure) {
      outcome.differences.clear();
      outcome.reason = fmt::format("rows without {}", claim.figure);
      return outcome;
    }
    outcome.differences.push_back(*a->figure - *b->figure);
  }
  const std::size_t n = outcome.differences.size();
  if (n == 0) {
    outcome.reason = "no common seed";
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

Table verdict_table(const std::vector<ClaimOutcome>& outcomes) {
  Table table{.header = {"claim", "verdict", "difference", "seeds"}};
  for (const ClaimOutcome& outcome : outcomes)
    table.rows.push_back(
        {outcome.claim.claim, verdict_text(outcome), difference_text(outcome),
         outcome.differences.empty() ? "-" : fmt::format("{}", outcome.differences.size())});
  return table;
}

}  // namespace

std::string ClaimedRow::text() const {
  return routing.empty() ? fmt::format("{}, {}", run, attention)
                         : fmt::format("{}, {}, {}", run, attention, routing);
}

std::vector<ClaimOutcome> claim_outcomes(const std::vector<Claim>& claims,
                                         const ComparedRows& rows) {
  std::vector<ClaimOutcome> outcomes;
  for (const Claim& claim : claims) {
    outcomes.push_back(outcome_of(claim, rows));
    outcomes.back().asked = question_of(outcomes.back());
  }
  return outcomes;
}

std::string claims_table(const std::vector<ClaimOutcome>& outcomes) {
  if (outcomes.empty()) return "";
  Table table = verdict_table(outcomes);
  table.caption = "claims";
  return plain_text(table, 2) + "\n";
}

void add_claims(HtmlReport& page, const std::vector<ClaimOutcome>& outcomes) {
  if (outcomes.empty()) return;
  page.heading("Claims");
  page.paragraph(
      "Each claim is tested on the rows below: is the figure of one row less than that of another, "
      "by the margin if there is one? difference: mean over pairs of equal seeds, with the "
      "half-width of its 95 % confidence interval (Student's t). A claim is held if the whole "
      "interval is below the margin, not held if none of it is, otherwise undecided; with one seed "
      "there is no interval, and the verdict says so. nats are per token, the logarithm of the "
      "perplexity. by document: smallest and largest difference of a document, and the standard "
      "deviation over documents.");
  Table table = verdict_table(outcomes);
  table.header.insert(table.header.end(),
                      {"by document", "claimed elsewhere", "tested on the rows"});
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Claim& claim = outcomes[i].claim;
    table.rows[i].insert(table.rows[i].end(),
                         {documents_text(outcomes[i].of_documents),
                          claim.claimed.empty() ? "-" : claim.claimed, outcomes[i].asked});
  }
  page.table(table);
}

}  // namespace focus
