#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "focus/evaluation/report/run_outcome.h"

// The rows of a comparison: the lines of its compare.jsonl, and the columns of its tables for
// machines. What a run has nothing to say of is null.
namespace focus {

/// The run that a row is of.
struct RunColumns {
  std::string name;
  std::int64_t seed = 0;
  std::string hash = {}, method = {};
  std::optional<std::int64_t> trainable_parameters = {}, train_tokens = {};

  static RunColumns of(const RunOutcome& run);

  void visit(auto&& f) {
    f("run", name);
    f("seed", seed);
    f("hash", hash);
    f("method", method);
    f("trainable_parameters", trainable_parameters);
    f("train_tokens", train_tokens);
  }
};

/// One attention on the texts of a split, or that a run failed.
struct TextRow {
  RunColumns run;
  std::optional<std::string> error = {};
  std::optional<double> train_tokens_per_second = {};
  std::optional<std::int64_t> train_peak_bytes = {};
  std::optional<std::string> split = {}, texts = {}, tokenizer = {};
  std::optional<std::int64_t> context = {}, stride = {}, documents = {}, bytes = {};
  std::optional<std::int64_t> tokens_scored = {};
  std::optional<std::string> attention = {}, kind = {};
  std::optional<std::int64_t> top_k = {};
  std::optional<std::string> gate = {}, routing = {};
  std::optional<bool> causal = {};
  std::optional<double> perplexity = {}, bits_per_byte = {}, pairs_attended = {};
  std::optional<double> pairs_choosing = {}, largest_group = {};
  std::optional<std::vector<double>> nats_of_documents = {};
  std::optional<double> kl = {}, nats_against_dense = {}, nats_against_dense_error = {};
  std::optional<std::int64_t> far_tokens = {};
  std::optional<double> nats_far = {}, nats_others = {}, kept_far = {}, kept_all = {};
  std::optional<double> eval_tokens_per_second = {};

  /// Throws std::runtime_error for a row of a version that did not say the kind.
  AttentionLabel label() const;

  void visit(auto&& f) {
    f("run", run.name);
    f("seed", run.seed);
    f("hash", run.hash);
    f("error", error);
    f("method", run.method);
    f("trainable_parameters", run.trainable_parameters);
    f("train_tokens", run.train_tokens);
    f("train_tokens_per_second", train_tokens_per_second);
    f("train_peak_bytes", train_peak_bytes);
    f("split", split);
    f("texts", texts);
    f("tokenizer", tokenizer);
    f("context", context);
    f("stride", stride);
    f("documents", documents);
    f("bytes", bytes);
    f("tokens_scored", tokens_scored);
    f("attention", attention);
    f("kind", kind);
    f("top_k", top_k);
    f("gate", gate);
    f("routing", routing);
    f("causal", causal);
    f("perplexity", perplexity);
    f("bits_per_byte", bits_per_byte);
    f("pairs_attended", pairs_attended);
    f("pairs_choosing", pairs_choosing);
    f("largest_group", largest_group);
    f("nats_of_documents", nats_of_documents);
    f("kl", kl);
    f("nats_against_dense", nats_against_dense);
    f("nats_against_dense_error", nats_against_dense_error);
    f("far_tokens", far_tokens);
    f("nats_far", nats_far);
    f("nats_others", nats_others);
    f("kept_far", kept_far);
    f("kept_all", kept_all);
    f("eval_tokens_per_second", eval_tokens_per_second);
  }
};

/// One attention's answers, of a bucket of distances or of all.
struct RecallAnswerRow {
  RunColumns run;
  std::string questions;
  std::int64_t documents = 0;
  std::string attention, kind, routing;
  std::optional<std::int64_t> from = {}, to = {};  // none: of all distances
  std::int64_t answers = 0;
  double right = 0, standard_error = 0, nats_per_token = 0;

  void visit(auto&& f) {
    run.visit(f);
    f("questions", questions);
    f("documents", documents);
    f("attention", attention);
    f("kind", kind);
    f("routing", routing);
    f("from", from);
    f("to", to);
    f("answers", answers);
    f("right", right);
    f("standard_error", standard_error);
    f("nats_per_token", nats_per_token);
  }
};

/// What a comparison has come to, in the order of its runs.
struct ComparedRows {
  std::vector<TextRow> texts = {};
  std::vector<RecallAnswerRow> recall = {};

  /// Calls f with each of these lists.
  void for_each_kind(auto&& f) const {
    f(texts);
    f(recall);
  }
};

/// Of CompareEval::splits(), and what a page calls them.
extern const std::array<std::pair<std::string_view, std::string_view>, 6> kSplits;

ComparedRows compared_rows(const std::vector<RunOutcome>& outcomes);
/// Those of a compare.jsonl. Throws std::runtime_error where the file cannot be read or a line is
/// none of them.
ComparedRows read_compared_rows(const std::filesystem::path& path);

/// A list of rows of one kind (structs_to_json) as a table for other programs, and as JSON lines.
std::string rows_csv(const nlohmann::ordered_json& rows);
std::string rows_jsonl(const nlohmann::ordered_json& rows);

}  // namespace focus
