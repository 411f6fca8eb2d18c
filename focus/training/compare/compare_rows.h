#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "focus/evaluation/report/evaluation_file.h"
#include "focus/training/training.h"

// The rows of a comparison: the lines of its compare.jsonl, and its CSV tables.
namespace focus {

/// What became of a run of a comparison.
struct RunOutcome {
  std::string name = {};
  RunConfig config = {};
  std::string hash = {};                     // empty if what the run reads cannot be read
  std::string error = {};                    // one line; empty if it is done
  std::optional<TrainingResult> train = {};  // none if it failed
  /// What focus eval wrote, by the splits of the texts.
  std::vector<std::pair<std::string, TextEvaluation>> evaluation = {};
  std::vector<RecallEvaluation> recall = {};  // what focus eval --recall wrote
};

/// The run of a row.
struct RunColumns {
  std::string name = {};
  std::int64_t seed = 0;
  std::string hash = {}, method = {};
  std::optional<std::int64_t> trainable_parameters = {}, train_tokens = {};

  void visit(auto&& f) {
    f("run", name);
    f("seed", seed);
    f("hash", hash);
    f("method", method);
    f("trainable_parameters", trainable_parameters);
    f("train_tokens", train_tokens);
  }
};

/// One attention on the texts of a split, or why a run failed.
struct TextRow {
  RunColumns run = {};
  std::optional<std::string> error = {};  // then nothing follows
  std::optional<double> train_tokens_per_second = {};
  std::optional<std::int64_t> train_peak_bytes = {};
  std::string split = {}, texts = {}, tokenizer = {};
  std::int64_t context = 0, stride = 0, documents = 0, bytes = 0;
  Row row = {};
  std::optional<std::int64_t> far_tokens = {};
  FarFigures far = {};

  void visit(auto&& f) {
    run.visit(f);
    f("error", error);
    if (error) return;
    f("train_tokens_per_second", train_tokens_per_second);
    f("train_peak_bytes", train_peak_bytes);
    f("split", split);
    f("texts", texts);
    f("tokenizer", tokenizer);
    f("context", context);
    f("stride", stride);
    f("documents", documents);
    f("bytes", bytes);
    row.visit(f);
    f("far_tokens", far_tokens);
    far.visit(f);
  }
};

/// One attention's answers at the distances of a bucket, or at all.
struct AnswersRow {
  RunColumns run = {};
  std::string questions = {};
  std::int64_t documents = 0;
  AttentionLabel attention = {};
  std::optional<std::int64_t> from = {}, to = {};  // without: all distances
  AnswerFigures figures = {};

  void visit(auto&& f) {
    run.visit(f);
    f("questions", questions);
    f("documents", documents);
    attention.visit(f);
    f("from", from);
    f("to", to);
    figures.visit(f);
  }
};

/// What a comparison came to, in the order of its runs.
struct ComparedRows {
  std::vector<TextRow> texts = {};
  std::vector<AnswersRow> recall = {};
};

/// The names of CompareEval::splits(), and what a page calls them.
extern const std::array<std::pair<std::string_view, std::string_view>, 6> kSplits;

ComparedRows compared_rows(const std::vector<RunOutcome>& outcomes);

/// A list of rows of one kind (structs_to_json) as CSV, and as JSON lines.
std::string rows_csv(const nlohmann::ordered_json& rows);
std::string rows_jsonl(const nlohmann::ordered_json& rows);

}  // namespace focus
