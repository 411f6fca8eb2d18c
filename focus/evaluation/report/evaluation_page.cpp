#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "autograd/base/check.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/report/charts.h"
#include "focus/evaluation/report/evaluation_file.h"
#include "focus/evaluation/report/tables.h"

namespace focus {
namespace {

/// One line a row: attentions of one name differ in whether they are causal.
std::string line_of(const AttentionLabel& attention) {
  return attention.name + (attention.causal ? "" : " (not causal)");
}

void add_answers(HtmlReport& report, const RecallEvaluation& recall) {
  report.heading("Recall: " + recall.questions);
  report.paragraph(kRecallLegend);
  report.table(recall_table(recall.rows));
  Chart chart{.title = "Correct answers by distance",
              .x_label = "largest distance in tokens",
              .y_label = "correct, %",
              .log_x = true};
  for (const RecallRow& row : recall.rows)
    for (const RecallBucket& bucket : row.by_distance)
      chart.add(line_of(row.attention),
                {static_cast<double>(bucket.to), 100 * bucket.figures.right});
  // One distance alone is no curve.
  if (std::ranges::any_of(chart.series, [](const Series& s) { return s.points.size() > 1; }))
    report.figure(line_chart(chart));
}

void add_positions(HtmlReport& report, const std::vector<Row>& rows) {
  Chart chart{.title = "Loss by position in the window",
              .x_label = "tokens before",
              .y_label = "nats per token",
              .log_x = true};
  for (const Row& row : rows)
    if (row.by_position)
      for (const PositionLoss& bucket : *row.by_position)
        chart.add(line_of(row.attention),
                  {std::sqrt(static_cast<double>(bucket.from * bucket.to)), bucket.nats});
  if (!chart.series.empty()) report.figure(line_chart(chart));
}

void add_perplexity(HtmlReport& report, const EvaluationFile& eval) {
  const TextEvaluation& texts = *eval.texts;
  report.heading("Perplexity: " + eval.model);
  report.paragraph(fmt::format(
      "{} text(s), {} bytes; tokenizer {} {}; context {}, stride {}, precision {}. Figures with "
      "sequence balance are not causal: each token's groups depend on later tokens.",
      texts.texts.size(), texts.bytes, texts.tokenizer.kind, texts.tokenizer.fingerprint,
      texts.context, texts.stride, name_of(eval.precision)));
  report.paragraph(row_legend() + ".");
  report.table(row_table(texts.rows));
  Chart chart{.title = "Perplexity against attention density",
              .x_label = "attention density, %",
              .y_label = "perplexity"};
  for (const Row& row : texts.rows) {
    const AttentionLabel& attention = row.attention;
    if (!attention.causal) continue;
    const double pairs = 100 * row.pairs_attended;
    // A line for each way to run hard attention, its points the k's; single points for the rest.
    if (attention.kind == AttentionKind::dense)
      chart.references.push_back({.label = "dense", .y = row.perplexity});
    else if (attention.kind == AttentionKind::hard)
      chart.add(attention.gate == HardGate::keep ? "hard, affinity kept" : "hard",
                {pairs, row.perplexity, fmt::format("k={}", attention.top_k.value_or(0))});
    else
      chart.add(attention.name, {pairs, row.perplexity, attention.name}, false);
  }
  if (!chart.series.empty()) report.figure(points_chart(chart));
}

/// What evaluations of adapters of one base have in common.
auto what_was_read(const EvaluationFile& eval) {
  const TextEvaluation& texts = *eval.texts;
  const FarReport far = texts.far.value_or(FarReport{});
  const RecallEvaluation recall = eval.recall.value_or(RecallEvaluation{});
  return std::tuple(eval.model, eval.precision, texts.texts, texts.bytes, texts.context,
                    texts.stride, texts.far.has_value(), far.settings.context, far.settings.margin,
                    far.window, far.tokens, eval.recall.has_value(), recall.questions,
                    recall.documents);
}

template <class R>
const R* row_like(const std::vector<R>& rows, const R& like) {
  const auto found = std::ranges::find(rows, like.attention, &R::attention);
  return found == rows.end() ? nullptr : &*found;
}

/// Whether rows of one attention have the same perplexity, too.
bool can_be_joined(const EvaluationFile& one, const EvaluationFile& other) {
  if (!one.texts || !other.texts || what_was_read(one) != what_was_read(other)) return false;
  return std::ranges::all_of(other.texts->rows, [&](const Row& row) {
    const Row* known = row_like(one.texts->rows, row);
    return known == nullptr || known->perplexity == row.perplexity;
  });
}

template <class R>
void append_rows(std::vector<R>& rows, const std::vector<R>& more) {
  for (const R& row : more)
    if (row_like(rows, row) == nullptr) rows.push_back(row);
}

}  // namespace

EvaluationFile evaluation_from_json(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("model"))
    fail("{}: not a JSON file of focus eval --json", where);
  EvaluationFile eval = struct_from_json<EvaluationFile>(json, where);
  eval.where = where;
  return eval;
}

std::vector<EvaluationFile> joined_evaluations(const std::vector<EvaluationFile>& evals) {
  std::vector<EvaluationFile> joined;
  for (const EvaluationFile& eval : evals) {
    const auto same = std::ranges::find_if(
        joined, [&](const EvaluationFile& one) { return can_be_joined(one, eval); });
    if (same == joined.end()) {
      joined.push_back(eval);
      continue;
    }
    append_rows(same->texts->rows, eval.texts->rows);
    if (same->texts->far) append_rows(same->texts->far->rows, eval.texts->far->rows);
    if (same->recall) append_rows(same->recall->rows, eval.recall->rows);
  }
  return joined;
}

void add_evaluation(HtmlReport& report, const EvaluationFile& eval) {
  if (!eval.texts && !eval.recall)
    fail("{}: the evaluation has neither texts nor answers", eval.where);
  if (eval.texts) add_perplexity(report, eval);
  if (eval.recall) add_answers(report, *eval.recall);
  if (!eval.texts) return;
  if (eval.texts->far) {
    report.heading("Long-range tokens");
    report.paragraph(far_legend(*eval.texts->far) + ".");
    report.table(far_table(*eval.texts->far));
  }
  add_positions(report, eval.texts->rows);
}

}  // namespace focus
