#pragma once

#include <optional>
#include <string>
#include <vector>

#include "focus/evaluation/statistics/statistics.h"

// What `focus groups` finds out.
namespace focus {

struct GroupsReport {
  /// [layers, layers]; of a layer with itself between heads.
  struct BetweenLayers {
    std::vector<std::vector<double>> rand, information;

    void visit(auto&& f) {
      f("adjusted_rand_index", rand);
      f("normalised_mutual_information", information);
    }
  };
  /// Some consecutive tokens of the text, from `first` on.
  struct Passage {
    struct Token {
      std::string text;
      std::vector<int> groups;  // in each grouping

      void visit(auto&& f) { FOCUS_MEMBERS(f, text, groups); }
    };
    Index first = 0;
    std::vector<Token> tokens = {};

    void visit(auto&& f) { FOCUS_MEMBERS(f, first, tokens); }
  };
  std::string model = {}, adapter = {}, attention = {};
  std::string grouping = {};  // tokens, keys, ...
  bool per_head = false;      // each key head has groups of its own
  Index context = 0, layers = 0, heads = 0, num_groups = 0, local_window = 0;
  std::optional<double> pairs_attended = {};  // share of the causal pairs; none of dense attention
  TextWindows text = {};
  std::vector<GroupAssignments> groupings = {};  // [layers, heads]
  std::vector<GroupingDetails> details = {};     // the same
  BetweenLayers between_layers = {};
  Passage passage = {};

  /// What groups.json holds.
  void visit(auto&& f) {
    FOCUS_MEMBERS(f, model, adapter, grouping, attention, context);
    f("documents", text.names);
    f("tokens", text.tokens());
    FOCUS_MEMBERS(f, layers, heads, num_groups, local_window, pairs_attended);
    f("category_names", enum_names(TokenCategory{}));
    FOCUS_MEMBERS(f, between_layers);
    f("groupings", details);
    f("passage", passage);
  }
};

/// The texts as windows for a model with groups. Throws std::runtime_error, one line, where the
/// model has none, or the texts have fewer tokens than a window.
TextWindows windows_for(const LoadedModel& model, std::span<const EvalText> texts, Index context);

/// Runs the texts through the model and describes its groups.
GroupsReport describe_groups(LoadedModel& model, const TextWindows& text, Index context,
                             const ShareDone& progress = {});

/// For a terminal: a line a grouping.
std::string groups_table(const GroupsReport& report);
/// One page without scripts or anything from outside: what was found, a passage coloured by group,
/// then figures of all groupings.
std::string groups_page(const GroupsReport& report);

}  // namespace focus
