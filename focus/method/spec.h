#pragma once

#include <optional>
#include <string>
#include <vector>

#include "focus/method/config.h"

namespace focus {

/// What attends.
enum class AttentionKind {
  dense,
  local,     // Focus's local window
  soft,      // Focus through the gate
  hard,      // Focus by the best groups
  summary,   // Focus with summary tokens
  focus,     // each of Focus's that the adapter has
  trained,   // the mechanism that the model was trained with
  baseline,  // one of the table of kinds
};
constexpr auto enum_names(AttentionKind) {
  return enum_list("dense", "local", "soft", "hard", "summary", "focus", "trained", "baseline");
}

/// Which attention: what a word says (focus/evaluation/attention_spec.h), and, with the rest as an
/// adapter's settings have it (or_from), what a forward pass runs.
struct AttentionSpec {
  AttentionKind kind = AttentionKind::dense;
  int top_k = 0;  // hard: groups a token keeps, 0: 1; focus: the most that are listed, 0: all
  std::optional<Balance> balance = {};
  std::optional<HardGate> gate = {};                    // of hard
  SummaryFields<std::optional> summary = {};            // of soft and hard the sinks
  std::vector<Index> m_by_layer = {}, w_by_layer = {};  // of summary, where layers differ
  std::string mechanism = {};                           // a baseline's name in the table
  std::optional<AnySettings> settings = {};             // and its settings

  /// What a word of this kind may say by KEY=VALUE, the first also without KEY=.
  template <class F>
  void visit(F&& f) {
    const bool hard = kind == AttentionKind::hard;
    if (hard || kind == AttentionKind::focus) {
      f("k", top_k, "", Range{hard ? 1.0 : 0.0, kMaxGroups});
      f("gate", gate);
    }
    if (hard || kind == AttentionKind::focus || kind == AttentionKind::soft) {
      f("balance", balance);
      f("sinks", summary.sinks, "", Range{0, kMaxSinks});
    }
    if (kind == AttentionKind::summary)
      summary.visit_each(
          [&f](const std::string& key, const char*, Range range, auto& value) {
            f(key == "num_selected_groups" ? "m" : key, value, "", range);
          },
          summary);
    if (settings) settings->visit(f);
  }

  /// The word that it begins with: the baseline's name, or the kind's.
  std::string word() const;
  /// "dense", "soft", "hard k=2", "hard k=2 keep", "local only", "summary m=2 w=32"
  std::string name() const;
  bool needs_focus() const { return kind >= AttentionKind::local && kind <= AttentionKind::focus; }
  /// The same with everything said that its kind has.
  AttentionSpec or_from(const FocusConfig& config) const;
  /// Summary attention of a layer, what is not given with its default; FocusModel::summary_of()
  /// adds heads' budgets.
  SummarySettings summary_of(Index layer) const;
};

/// "summary m=2 w=32", with what is not as usual behind it.
std::string summary_name(const SummarySettings& settings, const std::vector<Index>& m_by_layer = {},
                         const std::vector<Index>& w_by_layer = {});

}  // namespace focus
