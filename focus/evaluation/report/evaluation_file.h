#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "focus/evaluation/recall/long_range.h"
#include "focus/evaluation/report/html_report.h"

// What an evaluation came to: its file, and its tables for a terminal and for a page.
namespace focus {

/// Texts, and what attentions came to on them.
struct TextEvaluation {
  struct Tokenizer {
    std::string kind, fingerprint;

    void visit(auto&& f) { FOCUS_MEMBERS(f, kind, fingerprint); }
  };
  std::vector<std::string> texts = {};
  std::int64_t documents = 0, bytes = 0, words = 0;
  Tokenizer tokenizer = {};
  std::int64_t num_groups = 0;
  std::int64_t context = 0, stride = 0;
  std::vector<Row> rows = {};

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, texts, documents, bytes, words, tokenizer, num_groups, context, stride, rows);
  }
};

/// All but the rows, of an evaluation of a model on such texts with such settings.
TextEvaluation describe_texts(const LoadedModel& model, std::span<const EvalText> texts,
                              const EvalSettings& settings);

/// What `focus eval --json` writes.
struct EvaluationFile {
  std::string where = {};  // the file, for messages; not written
  std::string model = {}, adapter = {};
  Precision precision = Precision::float32;
  std::optional<TextEvaluation> texts = {};
  std::optional<RecallEvaluation> recall = {};

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, model, adapter, precision);
    f.part("texts", texts);
    f.maybe("recall", recall);
  }
};

/// Throws std::runtime_error that begins with `where` for anything else.
EvaluationFile evaluation_from_json(const nlohmann::json& json, const std::string& where);

/// Evaluations of one base on the same tokens and questions as one: its adapters side by side. The
/// others stay as they are.
std::vector<EvaluationFile> joined_evaluations(const std::vector<EvaluationFile>& evals);

/// Tables and charts. Throws std::runtime_error where `eval` has neither texts nor answers.
void add_evaluation(HtmlReport& report, const EvaluationFile& eval);

/// Which attention, then what it came to. The first two columns are text.
Table row_table(std::span<const Row> rows);
/// Correct answers: all, and by distance.
Table recall_table(const std::vector<RecallRow>& rows);

/// A chart of correct answers in % by the largest distance; nothing where no line has two points.
void add_recall_chart(HtmlReport& report, const std::string& title,
                      const std::vector<std::pair<std::string, Point>>& points);

/// What the columns of row_table() say.
std::string row_legend();
inline constexpr const char* kRecallLegend =
    "correct: each token of the answer is the argmax after the text before it; columns are "
    "distances in tokens";

/// A table of rows and more columns, such as a comparison's: header and cells of a row.
std::vector<std::string> row_header();
std::vector<std::string> row_cells(const Row& row);
/// Leaves out the columns that are "-" in each row.
void drop_empty_columns(Table& table);

}  // namespace focus
