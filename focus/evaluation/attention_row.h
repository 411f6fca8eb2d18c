#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace focus {

/// A value of a row where it is there and text, else empty.
std::string text_of(const nlohmann::ordered_json& row, const char* key);

/// What a row of `focus eval --json` was measured with.
struct AttentionRow {
  std::string name;             // as tables call it
  std::string kind;             // dense, local, soft, hard or rival
  int top_k = 0;                // of hard
  bool keeps_affinity = false;  // of hard: in the pairs that it attends
  std::string routing;          // where the groups' potentials come from; empty without groups
  bool causal = true;

  bool has_groups() const { return !routing.empty(); }
  /// "-", "carried", "sequence (not causal)", "not causal"
  std::string routing_text() const;
};

/// Throws std::runtime_error that begins with `where` for a row of a version that did not say the
/// kind.
AttentionRow read_attention_row(const nlohmann::ordered_json& row, const std::string& where);

/// Whether two rows are of the same attention with the same routing: rows of an evaluation, which
/// say routing and causal apart, and those of its far tokens and answers, which say routing_text().
bool same_attention(const nlohmann::ordered_json& row, const nlohmann::ordered_json& other);

}  // namespace focus
