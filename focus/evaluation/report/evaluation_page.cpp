#include "focus/evaluation/report/evaluation_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "autograd/base/check.h"
#include "focus/evaluation/report/charts.h"

namespace focus {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

const EvaluationRow* row_of_kind(const std::vector<EvaluationRow>& rows, std::string_view kind) {
  const auto found =
      std::ranges::find(rows, kind, [](const EvaluationRow& row) { return row.attention.kind; });
  return found == rows.end() ? nullptr : &*found;
}

/// The same attention with the same routing, of rows of any kind.
std::pair<std::string, std::string> key_of(const EvaluationRow& row) {
  return {row.attention.name, row.attention.routing_text()};
}
std::pair<std::string, std::string> key_of(const FarRow& row) { return {row.name, row.routing}; }
std::pair<std::string, std::string> key_of(const RecallFigures& row) {
  return {row.attention, row.routing};
}

/// The row that is of the attention of `wanted`.
template <class Row, class Wanted>
const Row* row_like(const std::vector<Row>& rows, const Wanted& wanted) {
  const auto found =
      std::ranges::find(rows, key_of(wanted), [](const Row& r) { return key_of(r); });
  return found == rows.end() ? nullptr : &*found;
}

std::string window_finding(const std::vector<EvaluationRow>& rows) {
  const EvaluationRow* dense = row_of_kind(rows, "dense");
  const EvaluationRow* local = row_of_kind(rows, "local");
  if (dense == nullptr || local == nullptr) return "";
  const double worse = local->perplexity / dense->perplexity - 1;
  return fmt::format(
      "With the local window only, perplexity is {} worse than with dense attention ({:.3f} "
      "against {:.3f}): {}",
      percent_text(worse), local->perplexity, dense->perplexity,
      worse >= 0.1 ? "this text depends on distant tokens."
                   : "this text depends little on distant tokens, so the figures below say little "
                     "about groups.");
}

std::string recall_finding(const RecallEvaluation& recall) {
  std::vector<std::string> parts;
  for (const RecallFigures& row : recall.rows)
    parts.push_back(fmt::format("{} {}", row.attention, percent_text(row.all.right)));
  if (parts.empty()) return "";
  const RecallFigures& first = recall.rows.front();
  return fmt::format("Of {} questions about text up to {} tokens before, correct answers: {}.",
                     first.all.answers, first.by_distance.empty() ? 0 : first.by_distance.back().to,
                     joined(parts));
}

std::string far_tokens_text(const FarReport& far) {
  return fmt::format(
      "the {} of {} tokens ({}) that more than {} tokens of context improve by more than {} nats",
      far.far, far.tokens, percent_text(far.share()), far.settings.context, far.settings.margin);
}

/// Of the rows that read groups and leave pairs out, that of least perplexity; null where there is
/// none.
const EvaluationRow* best_sparse(const std::vector<EvaluationRow>& rows) {
  const EvaluationRow* best = nullptr;
  for (const EvaluationRow& row : rows) {
    const AttentionLabel& attention = row.attention;
    if ((attention.kind != "hard" && attention.kind != "summary") || !attention.causal ||
        row.pairs_attended > 0.995)
      continue;
    if (best == nullptr || row.perplexity < best->perplexity) best = &row;
  }
  return best;
}

std::string sparse_finding(const WindowEvaluation& windows,
                           const std::optional<RecallEvaluation>& recall) {
  const EvaluationRow* dense = row_of_kind(windows.rows, "dense");
  const EvaluationRow* best = best_sparse(windows.rows);
  const std::optional<FarReport>& far = windows.far;
  if (dense == nullptr || best == nullptr)
    return far ? fmt::format("Long-range tokens: {}.", far_tokens_text(*far)) : "";
  std::string text = fmt::format(
      "Of the sparse attentions with groups, {} is best: perplexity {:+.1f} % against dense at an "
      "attention density of {}",
      best->attention.name, 100 * (best->perplexity / dense->perplexity - 1),
      percent_text(best->pairs_attended));
  if (recall)
    if (const RecallFigures* row = row_like(recall->rows, *best))
      text += fmt::format(", {} of the answers correct", percent_text(row->all.right));
  if (far)
    if (const FarRow* row = row_like(far->rows, *best))
      text += fmt::format(", and it retains {} of the long-range gain on {}",
                          percent_text(row->kept), far_tokens_text(*far));
  return text + ".";
}

void add_answers(HtmlReport& report, const RecallEvaluation& recall) {
  report.heading("Recall: " + recall.questions);
  report.paragraph(
      "Answers that appear verbatim at a long distance. Correct: each token of the answer is the "
      "argmax after the text before it. Distances are in tokens.");
  Table table{.header = {"attention", "all"}};
  PointsChart chart{.title = "Correct answers by distance",
                    .x_label = "largest distance in tokens",
                    .y_label = "correct, %"};
  for (const RecallFigures& row : recall.rows) {
    std::vector<std::string> cells = {row.attention, percent_text(row.all.right)};
    for (const RecallFigures::Bucket& bucket : row.by_distance) {
      if (table.rows.empty())
        table.header.push_back(fmt::format("{} to {}", bucket.from, bucket.to));
      cells.push_back(percent_text(bucket.figures.right));
      chart.add(row.attention, true,
                {static_cast<double>(bucket.to), 100 * bucket.figures.right, ""});
    }
    table.rows.push_back(std::move(cells));
  }
  report.table(table);
  // One distance alone is no curve.
  if (table.header.size() > 3) report.figure(points_chart_svg(chart));
}

void add_far(HtmlReport& report, const FarReport& far) {
  const FarSettings& settings = far.settings;
  report.heading("Long-range tokens");
  report.paragraph(
      fmt::format("{} of {} tokens are long-range: dense attention beats itself with {} to {} "
                  "tokens of context by more than {} nats. Retained: share of the long-range gain, "
                  "(window - row) / (window - dense) in nats; the window is {}.",
                  far.far, far.tokens, settings.context, settings.context + settings.step() - 1,
                  settings.margin, far.window));
  Table table{.header = {"attention", "nats, long-range tokens", "nats, other tokens",
                         "retained, long-range tokens", "retained, all tokens"}};
  for (const FarRow& row : far.rows)
    table.rows.push_back({row.name, number_text(row.far, 4), number_text(row.others, 4),
                          percent_text(row.kept), percent_text(row.kept_all)});
  report.table(table);
}

/// Of every attention that has a causal row at all lengths, its perplexity by length.
LineChart length_chart(const std::vector<WindowEvaluation>& lengths) {
  LineChart chart{.title = "Perplexity by context",
                  .x_label = "tokens per window",
                  .y_label = "perplexity",
                  .log_x = true};
  for (const WindowEvaluation& one : lengths)
    for (std::size_t i = 0; i < one.rows.size(); ++i) {
      if (i == chart.series.size()) chart.series.push_back({.name = one.rows[i].attention.name});
      chart.series[i].points.emplace_back(static_cast<double>(one.context), one.rows[i].perplexity);
    }
  return chart;
}

std::string length_finding(const std::vector<WindowEvaluation>& lengths) {
  const auto worse = [](const WindowEvaluation& one, std::size_t i) {
    const EvaluationRow* dense = row_of_kind(one.rows, "dense");
    if (dense == nullptr || i >= one.rows.size()) return std::string("-");
    return fmt::format("{:+.1f} % at {} tokens",
                       100 * (one.rows[i].perplexity / dense->perplexity - 1), one.context);
  };
  const std::vector<EvaluationRow>& rows = lengths.front().rows;
  if (lengths.size() < 2 || row_of_kind(rows, "dense") == nullptr) return "";
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].attention.kind != "dense")
      parts.push_back(fmt::format("{} {} and {}", rows[i].attention.name, worse(lengths.front(), i),
                                  worse(lengths.back(), i)));
  if (parts.empty()) return "";
  return fmt::format("Perplexity relative to dense attention at the same length: {}.",
                     fmt::join(parts, "; "));
}

void add_positions(HtmlReport& report, const std::vector<EvaluationRow>& rows) {
  LineChart chart{.title = "Loss by position in the window",
                  .x_label = "tokens before",
                  .y_label = "nats per token",
                  .log_x = true};
  for (const EvaluationRow& row : rows) {
    if (!row.by_position || row.by_position->empty()) continue;
    Series& series = chart.series.emplace_back(Series{.name = row.attention.name});
    for (const PositionLoss& bucket : *row.by_position)
      series.points.emplace_back(std::sqrt(static_cast<double>(bucket.from * (bucket.to - 1))),
                                 bucket.nats);
  }
  if (!chart.series.empty()) report.figure(line_chart_svg(chart));
}

StackedBars group_sizes(const EvaluationRow::Groups& groups) {
  StackedBars bars{.title = "Group sizes by layer (each token in its highest-scoring group)"};
  for (const auto& sizes : groups.sizes)
    bars.rows.emplace_back(fmt::format("layer {}", bars.rows.size()),
                           std::vector<double>(sizes.begin(), sizes.end()));
  if (!bars.rows.empty())
    for (std::size_t g = 0; g < bars.rows[0].second.size(); ++g)
      bars.segment_names.push_back(fmt::format("group {}", g));
  return bars;
}

void add_perplexity(HtmlReport& report, const EvaluationFile& eval) {
  const TextEvaluation& texts = *eval.texts;
  const WindowEvaluation& windows = texts.last();
  report.heading("Perplexity: " + eval.model);
  report.paragraph(fmt::format(
      "{} text(s), {} bytes; tokenizer {} {}; context {}, stride {}, precision {}. Figures with "
      "sequence balance are not causal: each token's groups depend on later tokens.",
      texts.texts.size(), texts.bytes, texts.tokenizer.kind, texts.tokenizer.fingerprint,
      windows.context, windows.stride, eval.precision));
  Table table{.header = {"attention", "routing", "perplexity", "bits/byte", "tokens",
                         "attention density", "selection", "largest group"}};
  PointsChart chart{.title = "Perplexity against attention density",
                    .x_label = "attention density, %",
                    .y_label = "perplexity"};
  const EvaluationRow::Groups* soft = nullptr;
  for (const EvaluationRow& row : windows.rows) {
    const AttentionLabel& attention = row.attention;
    const double pairs = 100 * row.pairs_attended;
    table.rows.push_back(
        {attention.name, attention.routing_text(), fmt::format("{:.4f}", row.perplexity),
         fmt::format("{:.5f}", row.bits_per_byte), fmt::format("{}", row.tokens_scored),
         percent_text(row.pairs_attended), percent_text(row.pairs_choosing),
         row.groups ? percent_text(row.groups->largest) : "-"});
    if (!attention.causal) continue;
    // A line for each way to run hard attention, its points the k's; single points for the rest.
    if (attention.kind == "dense")
      chart.references.push_back({.label = "dense", .y = row.perplexity});
    else if (attention.kind == "hard")
      chart.add(attention.keeps_affinity() ? "hard, affinity kept" : "hard", true,
                {pairs, row.perplexity, fmt::format("k={}", attention.top_k.value_or(0))});
    else
      chart.add(attention.kind == "local" ? "local window only" : attention.name, false,
                {pairs, row.perplexity, attention.name});
    if (attention.kind == "soft" && soft == nullptr && row.groups) soft = &*row.groups;
  }
  report.table(table);
  if (!chart.series.empty()) report.figure(points_chart_svg(chart));
  if (soft != nullptr) report.figure(stacked_bars_svg(group_sizes(*soft)));
}

/// Whether two evaluations are of the same base on the same tokens and questions, and rows of the
/// same name have the same perplexity: adapters of one base.
bool are_of_one_base(const EvaluationFile& one, const EvaluationFile& other) {
  if (!one.texts || !one.texts->windows || !other.texts || !other.texts->windows) return false;
  const auto texts = [](const EvaluationFile& eval) {
    const WindowEvaluation& windows = *eval.texts->windows;
    return std::tie(eval.model, eval.texts->texts, eval.texts->bytes, windows.context,
                    windows.stride, eval.precision);
  };
  const auto recall = [](const EvaluationFile& eval) {
    return eval.recall ? std::optional(std::pair(eval.recall->questions, eval.recall->documents))
                       : std::nullopt;
  };
  const auto far = [](const EvaluationFile& eval) {
    const std::optional<FarReport>& report = eval.texts->windows->far;
    return report ? std::optional(std::tuple(report->settings.context, report->settings.margin,
                                             report->window, report->tokens))
                  : std::nullopt;
  };
  if (texts(one) != texts(other) || recall(one) != recall(other) || far(one) != far(other))
    return false;
  return std::ranges::all_of(other.texts->windows->rows, [&](const EvaluationRow& row) {
    const EvaluationRow* known = row_like(one.texts->windows->rows, row);
    return known == nullptr || known->perplexity == row.perplexity;
  });
}

template <class Row>
void append_rows(std::vector<Row>& rows, const std::vector<Row>& more) {
  for (const Row& row : more)
    if (row_like(rows, row) == nullptr) rows.push_back(row);
}

/// Whether a row stands beside another of its attention in another compute.
bool in_several_precisions(const EvaluationRow& row) { return row.against_precision.has_value(); }

}  // namespace

std::vector<ReadEvaluation> joined_evaluations(const std::vector<ReadEvaluation>& evals) {
  std::vector<ReadEvaluation> joined;
  for (const ReadEvaluation& eval : evals) {
    const auto same = std::ranges::find_if(joined, [&](const ReadEvaluation& one) {
      return are_of_one_base(one.figures, eval.figures);
    });
    if (same == joined.end()) {
      joined.push_back(eval);
      continue;
    }
    WindowEvaluation& windows = *same->figures.texts->windows;
    const WindowEvaluation& more = *eval.figures.texts->windows;
    append_rows(windows.rows, more.rows);
    if (windows.far) append_rows(windows.far->rows, more.far->rows);
    if (same->figures.recall) append_rows(same->figures.recall->rows, eval.figures.recall->rows);
  }
  return joined;
}

Table perplexity_by_length(const std::vector<WindowEvaluation>& lengths) {
  Table table{.caption = "Perplexity by context (attention density)", .header = {"attention"}};
  const std::vector<EvaluationRow>& rows = lengths.at(0).rows;
  const bool by_compute = std::ranges::any_of(rows, in_several_precisions);
  for (const EvaluationRow& row : rows)
    table.rows.push_back({row.attention.name + (by_compute ? ", " + row.precision : "")});
  for (const WindowEvaluation& one : lengths) {
    table.header.push_back(fmt::format("{}", one.context));
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const EvaluationRow& row = one.rows.at(i);
      table.rows[i].push_back(
          fmt::format("{:.4f} ({:.0f} %)", row.perplexity, 100 * row.pairs_attended));
    }
  }
  return table;
}

Table overview(const EvaluationFile& eval) {
  Table table{.header = {"attention", "perplexity", "attention density"}};
  const WindowEvaluation& windows = eval.texts->last();
  const std::optional<FarReport>& far = windows.far;
  if (eval.recall) table.header.emplace_back("correct answers");
  if (far)
    table.header.insert(table.header.end(),
                        {"nats, long-range tokens", "retained, long-range", "retained, all"});
  for (const EvaluationRow& row : windows.rows) {
    std::vector<std::string>& cells = table.rows.emplace_back(
        std::vector{row.attention.name, fmt::format("{:.4f}", row.perplexity),
                    percent_text(row.pairs_attended)});
    if (eval.recall) {
      const RecallFigures* of_row = row_like(eval.recall->rows, row);
      cells.push_back(of_row == nullptr ? "-" : percent_text(of_row->all.right));
    }
    if (!far) continue;
    const FarRow* of_row = row_like(far->rows, row);
    const FarRow& of = of_row == nullptr ? FarRow{"", "", NAN, NAN, NAN, NAN} : *of_row;
    cells.insert(cells.end(),
                 {number_text(of.far, 4), percent_text(of.kept), percent_text(of.kept_all)});
  }
  return table;
}

std::vector<std::string> findings(const EvaluationFile& eval) {
  std::vector<std::string> sentences;
  if (eval.texts && eval.texts->lengths) sentences.push_back(length_finding(*eval.texts->lengths));
  if (eval.texts) sentences.push_back(window_finding(eval.texts->last().rows));
  if (eval.recall) sentences.push_back(recall_finding(*eval.recall));
  if (eval.texts) sentences.push_back(sparse_finding(eval.texts->last(), eval.recall));
  std::erase(sentences, "");
  return sentences;
}

void add_evaluation(HtmlReport& report, const EvaluationFile& eval, const std::string& where) {
  if (!eval.texts && !eval.recall) fail("{}: the evaluation has neither texts nor answers", where);
  if (!eval.texts) return add_answers(report, *eval.recall);
  if (eval.texts->lengths) {
    report.heading("Length");
    report.table(perplexity_by_length(*eval.texts->lengths));
    report.figure(line_chart_svg(length_chart(*eval.texts->lengths)));
  }
  const WindowEvaluation& windows = eval.texts->last();
  if (std::ranges::any_of(windows.rows, in_several_precisions))
    fail("{}: an evaluation with several precisions has no page: run focus eval with one", where);
  if (eval.recall || windows.far) {
    report.heading("Summary");
    report.table(overview(eval));
  }
  add_perplexity(report, eval);
  if (eval.recall) add_answers(report, *eval.recall);
  if (windows.far) add_far(report, *windows.far);
  add_positions(report, windows.rows);
}

}  // namespace focus
