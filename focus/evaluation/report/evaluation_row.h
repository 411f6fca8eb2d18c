#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "focus/evaluation/evaluation.h"
#include "focus/evaluation/recall/position_losses.h"

namespace focus {

/// What a row was measured with.
struct AttentionLabel {
  std::string name;                         // as tables call it
  std::string kind;                         // dense, local, soft, hard, summary or baseline
  std::optional<std::int64_t> top_k = {};   // of hard
  std::optional<std::string> gate = {};     // of hard: keep or drop the affinity of attended pairs
  std::optional<std::string> routing = {};  // where the groups' potentials come from, if any
  bool causal = true;

  bool has_groups() const { return routing.has_value(); }
  bool keeps_affinity() const { return gate == "keep"; }
  /// "-", "carried", "sequence (not causal)", "not causal"
  std::string routing_text() const;
};

/// Beside dense attention on the same tokens.
struct RowAgainstDense {
  double kl = 0, difference = 0, difference_error = 0;

  void visit(auto&& f) {
    f("kl", kl);
    f("difference", difference);
    f("difference_error", difference_error);
  }
};

/// Beside the same attention in another precision.
struct RowAgainstPrecision {
  std::string precision = {};
  double difference = 0, difference_error = 0;

  void visit(auto&& f) {
    f("precision", precision);
    f("difference", difference);
    f("difference_error", difference_error);
  }
};

/// Of the groups of its tokens or keys.
struct RowGroups {
  double pairs_distant = 0, largest = 0, largest_worst_layer = 0;
  std::optional<double> entropy = {};  // classes of summary attention are not weighed
  std::vector<std::vector<std::int64_t>> sizes = {};  // [layers][groups]

  void visit(auto&& f) {
    f("pairs_distant", pairs_distant);
    f("largest_group", largest);
    f("largest_group_worst_layer", largest_worst_layer);
    f("entropy", entropy);
    f("group_sizes", sizes);
  }
};

/// One attention of an evaluation, as `focus eval --json` writes it.
struct EvaluationRow {
  using AgainstDense = RowAgainstDense;
  using AgainstPrecision = RowAgainstPrecision;
  using Groups = RowGroups;

  AttentionLabel attention = {};
  std::string precision = {};
  double perplexity = 0, bits_per_byte = 0, word_perplexity = 0, byte_perplexity = 0;
  double nats_per_token = 0;
  std::int64_t tokens_scored = 0;
  double pairs_attended = 1, pairs_choosing = 0;
  std::optional<std::vector<double>> nats_of_documents = {};  // of 2 to 1,000 texts
  std::optional<AgainstDense> against_dense = {};
  std::optional<double> tokens_per_second = {};
  std::optional<std::vector<std::pair<std::string, std::string>>> settings = {};  // of a baseline
  std::optional<Groups> groups = {};
  std::optional<AgainstPrecision> against_precision = {};
  std::optional<std::vector<PositionLoss>> by_position = {};

  void visit(auto&& f) {
    f("attention", attention.name);
    f("kind", attention.kind);
    f("top_k", attention.top_k);
    f("routing", attention.routing);
    f("precision", precision);
    f("causal", attention.causal);
    f("perplexity", perplexity);
    f("bits_per_byte", bits_per_byte);
    f("word_perplexity", word_perplexity);
    f("byte_perplexity", byte_perplexity);
    f("nats_per_token", nats_per_token);
    f("tokens_scored", tokens_scored);
    f("pairs_attended", pairs_attended);
    f("pairs_choosing", pairs_choosing);
    f.maybe("nats_of_documents", nats_of_documents);
    f.maybe("against_dense", against_dense);
    f.maybe("tokens_per_second", tokens_per_second);
    f.maybe("gate", attention.gate);
    f.maybe("settings", settings);
    f.part("pairs_distant", groups);
    f.maybe("against_precision", against_precision);
    f.maybe("by_position", by_position);
  }
};

/// The same for the same figures, unless `with_speed` adds tokens_per_second.
EvaluationRow evaluation_row(const EvalRow& row, bool with_speed = false);
std::vector<EvaluationRow> evaluation_rows(std::span<const EvalRow> rows, bool with_speed = false);

}  // namespace focus
