#pragma once

#include <optional>
#include <string>
#include <vector>

#include "focus/evaluation/statistics/statistics.h"

// What `focus groups` finds out.
namespace focus {

/// Agreement of two lots of groupings, layer by layer; with several heads in a layer the mean over
/// them.
struct LayerAgreement {
  std::string first, second;  // what they are of
  std::vector<Agreement> layers;

  Agreement mean() const;
  void visit(auto&& f) {
    Agreement mean = this->mean();
    FOCUS_MEMBERS(f, first, second, mean, layers);
  }
};

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
  std::string grouping = {};   // tokens, keys, ...
  bool per_head = false;       // each key head has groups of its own
  std::string tokenizer = {};  // its fingerprint
  Index context = 0, layers = 0, heads = 0, num_groups = 0, local_window = 0;
  std::optional<double> pairs_attended = {};  // share of the causal pairs; none of dense attention
  TextWindows text = {};
  std::vector<GroupAssignments> groupings = {};  // [layers, heads]
  std::vector<GroupingDetails> details = {};     // the same
  BetweenLayers between_layers = {};
  std::optional<LayerAgreement> against = {};
  std::vector<LayerAgreement> checkpoints = {};  // of each with the one before
  Passage passage = {};

  /// What groups.json holds.
  void visit(auto&& f) {
    FOCUS_MEMBERS(f, model, adapter, grouping, attention, context);
    f("documents", text.names);
    f("tokens", text.tokens());
    FOCUS_MEMBERS(f, layers, heads, num_groups, local_window, pairs_attended);
    f("category_names", enum_names(TokenCategory{}));
    FOCUS_MEMBERS(f, between_layers, against, checkpoints);
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

/// Layer by layer, the mean over heads: where both have as many head by head, else each with each.
/// Throws std::invalid_argument where the layers are not as many.
LayerAgreement layer_agreement(std::span<const GroupAssignments> a,
                               std::span<const GroupAssignments> b);

/// For a terminal: a line a grouping, and agreements.
std::string groups_table(const GroupsReport& report);
/// One page without scripts or anything from outside: what was found, a passage coloured by group,
/// then the figures behind it; of many layers or groups some, so that it stays below 1 MB.
std::string groups_page(const GroupsReport& report);

// Groups of other adapters, models and checkpoints in the tokens of a report.

/// Whether a path is of a whole model, not of an adapter.
bool is_whole_model(const std::filesystem::path& path);

/// Refuses, with one line, what has no groups for `model`'s layers, and an adapter of another base;
/// runs nothing. `path`: an adapter, a model, or a checkpoint of one of these.
void check_other_groups(const LoadedModel& model, const std::string& path);

/// The groups of another model, or of an adapter on the same base, in the tokens of a report.
/// Throws std::runtime_error, one line, for another tokenizer.
std::vector<GroupAssignments> other_groupings(LoadedModel& other, const GroupsReport& report,
                                              const ShareDone& progress = {});

/// Checkpoints in their order: a run's folder means all its checkpoints. Throws where there is
/// just one, or none of what is named.
std::vector<std::string> expand_checkpoints(const std::vector<std::string>& paths);

}  // namespace focus
