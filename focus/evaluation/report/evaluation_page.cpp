#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "autograd/base/check.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/report/evaluation_file.h"

namespace focus {
namespace {

struct Column {
  const char* header;
  std::string (*cell)(const Row&);
};

constexpr std::array<Column, 12> kColumns = {{
    {"attention", [](const Row& row) { return row.attention.name; }},
    {"routing", [](const Row& row) { return row.attention.routing_text(); }},
    {"perplexity", [](const Row& row) { return number_text(row.perplexity, 4); }},
    {"by word",
     [](const Row& row) {
       return std::isfinite(row.word_perplexity) ? fmt::format("{:.5g}", row.word_perplexity) : "-";
     }},
    {"bits/byte", [](const Row& row) { return number_text(row.bits_per_byte, 5); }},
    {"tokens", [](const Row& row) { return fmt::format("{}", row.tokens_scored); }},
    {"tok/s", [](const Row& row) { return number_text(row.tokens_per_second, 0); }},
    {"density", [](const Row& row) { return percent_text(row.pairs_attended); }},
    {"selection", [](const Row& row) { return percent_text(row.pairs_choosing); }},
    {"largest", [](const Row& row) { return percent_text(row.largest_group); }},
    {"KL", [](const Row& row) { return number_text(row.kl, 5); }},
    {"nats against dense",
     [](const Row& row) {
       return row.nats_against_dense ? fmt::format("{:+.5f} +-{:.5f}", *row.nats_against_dense,
                                                   row.nats_against_dense_error.value_or(NAN))
                                     : "-";
     }},
}};

/// One line a row: attentions of one name differ in whether they are causal.
std::string line_of(const AttentionLabel& attention) {
  return attention.name + (attention.causal ? "" : " (not causal)");
}

void add_answers(HtmlReport& report, const RecallEvaluation& recall) {
  report.heading("Recall: " + recall.questions);
  report.paragraph(kRecallLegend);
  report.table(recall_table(recall.rows));
  std::vector<std::pair<std::string, Point>> points;
  for (const RecallRow& row : recall.rows)
    for (const auto& [from, to, figures] : row.by_distance)
      points.push_back({line_of(row.attention), {static_cast<double>(to), 100 * figures.right}});
  add_recall_chart(report, "Correct answers by distance", points);
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
  const RecallEvaluation recall = eval.recall.value_or(RecallEvaluation{});
  return std::tuple(eval.model, eval.precision, texts.texts, texts.bytes, texts.context,
                    texts.stride, eval.recall.has_value(), recall.questions, recall.documents);
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

std::vector<std::string> row_header() {
  std::vector<std::string> header;
  header.reserve(std::size(kColumns));
  for (const Column& column : kColumns) header.emplace_back(column.header);
  return header;
}

std::vector<std::string> row_cells(const Row& row) {
  std::vector<std::string> cells;
  cells.reserve(std::size(kColumns));
  for (const Column& column : kColumns) cells.push_back(column.cell(row));
  return cells;
}

void drop_empty_columns(Table& table) {
  constexpr std::size_t kNames = 2;  // the first columns, which stay
  for (std::size_t c = table.header.size(); c-- > kNames;) {
    if (std::ranges::any_of(table.rows, [c](const auto& row) { return row[c] != "-"; })) continue;
    const auto at = static_cast<std::ptrdiff_t>(c);
    table.header.erase(table.header.begin() + at);
    for (auto& row : table.rows) row.erase(row.begin() + at);
  }
}

Table row_table(std::span<const Row> rows) {
  Table table{.header = row_header()};
  for (const Row& row : rows) table.rows.push_back(row_cells(row));
  drop_empty_columns(table);
  return table;
}

Table recall_table(const std::vector<RecallRow>& rows) {
  Table table{.header = {"attention", "routing", "correct"}};
  for (const RecallRow& row : rows) {
    auto& cells = table.rows.emplace_back(std::vector{
        row.attention.name, row.attention.routing_text(),
        fmt::format("{} +-{:.1f}", percent_text(row.all.right), 100 * row.all.standard_error)});
    for (const RecallBucket& bucket : row.by_distance) {
      if (table.rows.size() == 1)
        table.header.push_back(fmt::format("{} to {}", bucket.from, bucket.to));
      cells.push_back(percent_text(bucket.figures.right));
    }
  }
  if (rows.empty()) return table;
  auto& cells = table.rows.emplace_back(
      std::vector<std::string>{"answers", "", fmt::format("{}", rows[0].all.answers)});
  for (const RecallBucket& bucket : rows[0].by_distance)
    cells.push_back(fmt::format("{}", bucket.figures.answers));
  return table;
}

void add_recall_chart(HtmlReport& report, const std::string& title,
                      const std::vector<std::pair<std::string, Point>>& points) {
  Chart chart{.title = title,
              .x_label = "largest distance in tokens",
              .y_label = "correct, %",
              .log_x = true};
  for (const auto& [name, point] : points) chart.add(name, point);
  if (std::ranges::any_of(chart.series, [](const Series& s) { return s.points.size() > 1; }))
    report.figure(line_chart(chart));
}

std::string row_legend() {
  return "by word: perplexity per word; tok/s: tokens scored per second; density: "
         "the share of causal pairs computed, a summary token counts as one; selection: selection "
         "overhead, in pair equivalents; largest: the largest group's share, mean over layers; KL: "
         "divergence of the row's predictions from those of dense attention, KL(dense || row)";
}

TextEvaluation describe_texts(const LoadedModel& model, std::span<const EvalText> texts,
                              const EvalSettings& settings) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  TextEvaluation figures{.documents = std::ssize(texts),
                         .tokenizer = {tokenizer.kind(), tokenizer.fingerprint()},
                         .context = settings.context,
                         .stride = settings.stride};
  if (model.focus()) figures.num_groups = model.focus()->config().num_groups;
  for (const EvalText& text : texts) {
    figures.bytes += text.bytes;
    figures.words += text.words;
    if (figures.texts.empty() || figures.texts.back() != text.name)
      figures.texts.push_back(text.name);
  }
  return figures;
}

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
    if (same->recall) append_rows(same->recall->rows, eval.recall->rows);
  }
  return joined;
}

void add_evaluation(HtmlReport& report, const EvaluationFile& eval) {
  if (!eval.texts && !eval.recall)
    fail("{}: the evaluation has neither texts nor answers", eval.where);
  if (eval.texts) add_perplexity(report, eval);
  if (eval.recall) add_answers(report, *eval.recall);
}

}  // namespace focus
