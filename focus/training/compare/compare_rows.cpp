#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/settings/struct_json.h"
#include "focus/training/compare/compare_report.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

/// What a run's rows have in common.
TextRow row_of_run(const RunOutcome& run) {
  TextRow row{.run = {.name = run.name,
                      .seed = run.config.seed,
                      .hash = run.hash,
                      .method = value_text(run.config.method)}};
  if (!run.error.empty()) row.error = run.error;
  if (!run.train) return row;
  row.run.trainable_parameters = run.train->trainable;
  row.run.train_tokens = run.train->tokens;
  row.train_tokens_per_second = run.train->tokens_per_second;
  row.train_peak_bytes = run.train->peak_bytes;
  return row;
}

TextRow text_row(const RunOutcome& run, const std::string& split, const TextEvaluation& texts,
                 const Row& figures) {
  TextRow row = row_of_run(run);
  row.split = split;
  row.texts = fmt::format("{}", fmt::join(texts.texts, " "));
  row.tokenizer = fmt::format("{} {}", texts.tokenizer.kind, texts.tokenizer.fingerprint);
  row.context = texts.context;
  row.stride = texts.stride;
  row.documents = texts.documents;
  row.bytes = texts.bytes;
  row.row = figures;
  row.row.group_sizes.reset();  // many numbers, which the file of the run has
  return row;
}

void add_run(const RunOutcome& run, ComparedRows& rows) {
  if (!run.error.empty()) return rows.texts.push_back(row_of_run(run));
  for (const auto& [split, evaluation] : run.evaluation)
    for (const Row& figures : evaluation.rows)
      rows.texts.push_back(text_row(run, split, evaluation, figures));
  for (const RecallEvaluation& recall : run.recall)
    for (const RecallRow& figures : recall.rows) {
      AnswersRow row{.run = row_of_run(run).run,
                     .questions = recall.questions,
                     .documents = recall.documents,
                     .attention = figures.attention,
                     .figures = figures.all};
      rows.recall.push_back(row);
      for (const RecallBucket& bucket : figures.by_distance) {
        row.from = bucket.from;
        row.to = bucket.to;
        row.figures = bucket.figures;
        rows.recall.push_back(row);
      }
    }
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

ComparedRows compared_rows(const std::vector<RunOutcome>& outcomes) {
  ComparedRows rows;
  for (const RunOutcome& run : outcomes) add_run(run, rows);
  return rows;
}

std::string rows_csv(const Json& rows) {
  std::vector<std::string> names;
  for (const Json& row : rows)
    for (const auto& [name, value] : row.items())
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  std::string text = names.empty() ? "" : fmt::format("{}\n", fmt::join(names, ","));
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    cells.reserve(names.size());
    for (const std::string& name : names)
      cells.push_back(csv_cell(row.contains(name) ? row[name] : Json()));
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

std::string rows_jsonl(const Json& rows) {
  std::string text;
  for (const Json& row : rows) text += json_text(row) + '\n';
  return text;
}

}  // namespace focus
