#include "focus/evaluation/report/compare_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"
#include "data/settings/struct_json.h"
#include "focus/training/metrics.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> finite(std::optional<double> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// The columns that say what a run is and how it went.
TextRow row_of_run(const RunOutcome& run) {
  TextRow row{.run = RunColumns::of(run)};
  if (!run.error.empty()) row.error = run.error;
  if (!run.train) return row;
  row.train_tokens_per_second = run.train->tokens_per_second;
  row.train_peak_bytes = run.train->peak_bytes;
  return row;
}

TextRow text_row(const RunOutcome& run, const std::string& split, const TextEvaluation& texts,
                 const EvaluationRow& figures) {
  const WindowEvaluation& windows = *texts.windows;
  TextRow row = row_of_run(run);
  row.split = split;
  row.texts = fmt::format("{}", fmt::join(texts.texts, " "));
  row.tokenizer = fmt::format("{} {}", texts.tokenizer.kind, texts.tokenizer.fingerprint);
  row.context = windows.context;
  row.stride = windows.stride;
  row.documents = texts.documents;
  row.bytes = texts.bytes;
  row.tokens_scored = figures.tokens_scored;
  row.attention = figures.attention.name;
  row.kind = figures.attention.kind;
  row.top_k = figures.attention.top_k;
  row.gate = figures.attention.gate;
  row.routing = figures.attention.routing;
  row.causal = figures.attention.causal;
  row.perplexity = finite(figures.perplexity);
  row.bits_per_byte = finite(figures.bits_per_byte);
  row.pairs_attended = figures.pairs_attended;
  row.pairs_choosing = figures.pairs_choosing;
  row.nats_of_documents = figures.nats_of_documents;
  row.eval_tokens_per_second = figures.tokens_per_second;
  if (figures.groups) row.largest_group = finite(figures.groups->largest);
  if (figures.against_dense) {
    row.kl = finite(figures.against_dense->kl);
    row.nats_against_dense = finite(figures.against_dense->difference);
    row.nats_against_dense_error = finite(figures.against_dense->difference_error);
  }
  if (!windows.far) return row;
  row.far_tokens = windows.far->far;
  for (const FarRow& far : windows.far->rows)
    if (far.name == figures.attention.name && far.routing == figures.attention.routing_text()) {
      row.nats_far = finite(far.far);
      row.nats_others = finite(far.others);
      row.kept_far = finite(far.kept);
      row.kept_all = finite(far.kept_all);
      break;
    }
  return row;
}

RecallAnswerRow recall_answer_row(const RunOutcome& run, const RecallEvaluation& recall,
                                  const RecallFigures& figures, const AnswerFigures& answers) {
  return {.run = RunColumns::of(run),
          .questions = recall.questions,
          .documents = recall.documents,
          .attention = figures.attention,
          .kind = figures.kind,
          .routing = figures.routing,
          .answers = answers.answers,
          .right = answers.right,
          .standard_error = answers.standard_error,
          .nats_per_token = answers.nats_per_token};
}

void add_run(const RunOutcome& run, ComparedRows& rows) {
  if (!run.error.empty()) return rows.texts.push_back(row_of_run(run));
  for (const auto& [split, title] : kSplits)
    for (const auto& [name, evaluation] : run.evaluation)
      if (name == split)
        for (const EvaluationRow& figures : evaluation.windows->rows)
          rows.texts.push_back(text_row(run, name, evaluation, figures));
  for (const RecallEvaluation& recall : run.recall)
    for (const RecallFigures& figures : recall.rows) {
      rows.recall.push_back(recall_answer_row(run, recall, figures, figures.all));
      for (const RecallFigures::Bucket& bucket : figures.by_distance) {
        rows.recall.push_back(recall_answer_row(run, recall, figures, bucket.figures));
        rows.recall.back().from = bucket.from;
        rows.recall.back().to = bucket.to;
      }
    }
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

const std::array<std::pair<std::string_view, std::string_view>, 6> kSplits = {
    {{"valid", "Validation texts"},
     {"target", "Target texts"},
     {"source", "Source texts"},
     {"test", "Test texts"},
     {"test target", "Test texts of the target"},
     {"test source", "Test texts of the source"}}};

RunColumns RunColumns::of(const RunOutcome& run) {
  RunColumns columns{.name = run.name,
                     .seed = run.config.seed,
                     .hash = run.hash,
                     .method = value_text(run.config.method)};
  if (!run.train) return columns;
  columns.trainable_parameters = run.train->trainable;
  columns.train_tokens = run.train->tokens;
  return columns;
}

AttentionLabel TextRow::label() const {
  if (!attention || !kind || !causal)
    fail("{}: made by an older version, without the kind of each attention: run focus eval again",
         run.name);
  return {.name = *attention,
          .kind = *kind,
          .top_k = top_k,
          .gate = gate,
          .routing = routing,
          .causal = *causal};
}

ComparedRows compared_rows(const std::vector<RunOutcome>& outcomes) {
  ComparedRows rows;
  for (const RunOutcome& run : outcomes) add_run(run, rows);
  return rows;
}

ComparedRows read_compared_rows(const std::filesystem::path& path) {
  ComparedRows rows;
  int line = 0;
  for (const Json& record : read_metrics(path)) {
    const std::string where = fmt::format("{}:{}", path.string(), ++line);
    const nlohmann::json json = record;
    const auto says = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
    if (says("questions"))
      rows.recall.push_back(struct_from_json<RecallAnswerRow>(json, where));
    else if (says("split") || says("error"))
      rows.texts.push_back(struct_from_json<TextRow>(json, where));
    else
      fail("{}: not a row of a comparison: expected run, seed, and split or questions; got {}",
           where, shown_json(json));
  }
  if (rows.texts.empty() && rows.recall.empty())
    fail("{}: has no rows of a comparison", path.string());
  return rows;
}

std::string rows_csv(const Json& rows) {
  std::string text;
  for (const Json& row : rows) {
    std::vector<std::string> names, cells;
    for (const auto& [name, value] : row.items()) {
      names.push_back(name);
      cells.push_back(csv_cell(value));
    }
    if (text.empty()) text = fmt::format("{}\n", fmt::join(names, ","));
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

std::string rows_jsonl(const Json& rows) {
  std::string text;
  for (const Json& row : rows) text += row.dump() + '\n';
  return text;
}

}  // namespace focus
