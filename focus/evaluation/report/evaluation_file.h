#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "focus/evaluation/recall/far_tokens.h"
#include "focus/evaluation/report/evaluation_row.h"
#include "focus/evaluation/report/recall_figures.h"

namespace focus {

/// Texts in windows of one length.
struct WindowEvaluation {
  std::int64_t context = 0, stride = 0;
  std::vector<EvaluationRow> rows = {};
  std::optional<FarReport> far = {};

  void visit(auto&& f) {
    f("context", context);
    f("stride", stride);
    f("rows", rows);
    f.maybe("far", far);
  }
};

/// Texts, in windows of one length or of several.
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
  std::optional<WindowEvaluation> windows = {};               // of one length,
  std::optional<std::vector<WindowEvaluation>> lengths = {};  // or of several

  /// Those of the last length.
  const WindowEvaluation& last() const { return lengths ? lengths->back() : *windows; }

  void visit(auto&& f) {
    f("texts", texts);
    f("documents", documents);
    f("bytes", bytes);
    f("words", words);
    f("tokenizer", tokenizer);
    f("num_groups", num_groups);
    f.part("rows", windows);
    f.maybe("lengths", lengths);
  }
};

/// What `focus eval --json` writes.
struct EvaluationFile {
  std::string model = {}, adapter = {}, precision = {};
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

/// Throws std::runtime_error that begins with `where` for what is none of an evaluation.
EvaluationFile evaluation_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace focus
