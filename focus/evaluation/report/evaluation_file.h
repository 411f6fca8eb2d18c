#pragma once

#include <nlohmann/json_fwd.hpp>

#include "focus/evaluation/recall/far_tokens.h"
#include "focus/evaluation/recall/recall_eval.h"

namespace focus {

class HtmlReport;

/// Texts, and what attentions came to on them.
struct TextEvaluation {
  struct Tokenizer {
    std::string kind, fingerprint;

    void visit(auto&& f) {
      f("kind", kind);
      f("fingerprint", fingerprint);
    }
  };
  std::vector<std::string> texts = {};
  std::int64_t documents = 0, bytes = 0, words = 0;
  Tokenizer tokenizer = {};
  std::int64_t num_groups = 0;
  std::int64_t context = 0, stride = 0;
  std::vector<Row> rows = {};
  std::optional<FarReport> far = {};

  void visit(auto&& f) {
    f("texts", texts);
    f("documents", documents);
    f("bytes", bytes);
    f("words", words);
    f("tokenizer", tokenizer);
    f("num_groups", num_groups);
    f("context", context);
    f("stride", stride);
    f("rows", rows);
    f.maybe("far", far);
  }
};

/// What `focus eval --json` writes.
struct EvaluationFile {
  std::string where = {};  // the file, for messages; not written
  std::string model = {}, adapter = {};
  Precision precision = Precision::float32;
  std::optional<TextEvaluation> texts = {};
  std::optional<RecallEvaluation> recall = {};

  void visit(auto&& f) {
    f("model", model);
    f("adapter", adapter);
    f("precision", precision);
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

}  // namespace focus
