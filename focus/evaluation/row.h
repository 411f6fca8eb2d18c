#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/precision.h"
#include "focus/evaluation/attention_spec.h"

namespace focus {

/// Which attention a figure belongs to.
struct AttentionLabel {
  std::string name = {};                      // as tables call it: "hard k=2 keep", "window w=128"
  AttentionKind kind = AttentionKind::dense;  // what ran: neither focus nor trained
  std::optional<std::int64_t> top_k = {};     // of hard
  std::optional<HardGate> gate = {};          // of hard
  std::optional<std::string> routing = {};    // where the groups' potentials come from
  bool causal = true;

  static AttentionLabel of(const ActiveAttention& active, const AttentionSpec& spec);
  /// "-", "carried", "sequence (not causal)", "not causal"
  std::string routing_text() const {
    if (causal) return routing.value_or("-");
    return routing ? *routing + " (not causal)" : "not causal";
  }
  bool operator==(const AttentionLabel&) const = default;

  void visit(auto&& f) {
    f("attention", name);
    f("kind", kind);
    f("top_k", top_k);
    f("gate", gate);
    f("routing", routing);
    f("causal", causal);
  }
};

/// Loss by the number of tokens before: from `from` to `to` tokens of its window.
struct PositionLoss {
  Index from = 1, to = 1;
  std::int64_t tokens = 0;
  double nats = 0;  // per token

  void visit(auto&& f) {
    f("from", from);
    f("to", to);
    f("tokens", tokens);
    f("nats_per_token", nats);
  }
};

/// What one attention came to on some texts: the row of every table, page and file. A new figure is
/// a member here, a line of the visit, and what computes it. Without a value: not measured.
struct Row {
  AttentionLabel attention = {};
  Precision precision = Precision::float32;
  double perplexity = 0, bits_per_byte = 0, word_perplexity = 0, byte_perplexity = 0;
  double nats_per_token = 0;
  std::int64_t tokens_scored = 0;
  double pairs_attended = 1, pairs_choosing = 0;  // shares of the causal pairs
  // Against dense attention on the same tokens: KL(dense || row), and the difference in nats per
  // token with its standard error over tokens.
  std::optional<double> kl = {}, nats_against_dense = {}, nats_against_dense_error = {};
  // Attention with groups only: pairs beyond the local window, the largest group's share (mean over
  // layers, and in the worst layer) and, of groups of tokens, the entropy of the assignments.
  std::optional<double> pairs_distant = {}, largest_group = {}, largest_group_worst_layer = {};
  std::optional<double> entropy = {};
  std::optional<std::vector<std::vector<std::int64_t>>> group_sizes = {};  // [layers][groups]
  std::optional<std::vector<double>> nats_of_documents = {};               // of 2 to 1,000 texts
  std::optional<double> tokens_per_second = {};                            // scored
  std::optional<std::vector<std::pair<std::string, std::string>>> settings = {};  // of a baseline
  std::optional<std::vector<PositionLoss>> by_position = {};

  void visit(auto&& f) {
    attention.visit(f);
    f("precision", precision);
    f("perplexity", perplexity);
    f("bits_per_byte", bits_per_byte);
    f("word_perplexity", word_perplexity);
    f("byte_perplexity", byte_perplexity);
    f("nats_per_token", nats_per_token);
    f("tokens_scored", tokens_scored);
    f("pairs_attended", pairs_attended);
    f("pairs_choosing", pairs_choosing);
    f("kl", kl);
    f("nats_against_dense", nats_against_dense);
    f("nats_against_dense_error", nats_against_dense_error);
    f("pairs_distant", pairs_distant);
    f("largest_group", largest_group);
    f("largest_group_worst_layer", largest_group_worst_layer);
    f("entropy", entropy);
    f("group_sizes", group_sizes);
    f("nats_of_documents", nats_of_documents);
    f("tokens_per_second", tokens_per_second);
    f("settings", settings);
    f("by_position", by_position);
  }
};

}  // namespace focus
