#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "focus/evaluation/evaluation.h"
#include "focus/evaluation/statistics/agreement.h"
#include "focus/evaluation/statistics/statistics.h"

// What `focus groups` finds out.
namespace focus {

/// What is known of one grouping; vectors are [groups].
struct GroupingDetails {
  std::vector<std::int64_t> sizes;
  std::vector<double> confidence;
  std::vector<TypicalTokens> typical;
  Purity purity;
  // Shares of the largest and the smallest group; the entropy of the sizes over log K, which is 1
  // where all are of the same size; confidence over all tokens.
  double largest = 0, smallest = 0, size_entropy = 0, mean_confidence = 0;
};

/// Agreement of two lots of groupings, layer by layer; with several heads in a layer the mean over
/// them.
struct LayerAgreement {
  std::string first, second;  // what they are of
  std::vector<Agreement> layers;
  Agreement mean() const;
};

struct GroupsReport {
  std::string model = {}, adapter = {}, attention = {};
  std::string grouping = {};   // tokens, keys, ...
  bool per_head = false;       // each key head has groups of its own
  std::string tokenizer = {};  // its fingerprint
  Index context = 0, layers = 0, heads = 0, groups = 0, local_window = 0;
  TextWindows text = {};
  std::map<std::int32_t, std::string> vocabulary = {};  // what the text's ids read as
  std::vector<TokenCategory> categories = {};           // of text.ids
  std::vector<GroupAssignments> groupings = {};         // [layers, heads]
  std::vector<GroupingDetails> details = {};            // the same
  std::vector<Agreement> between = {};  // [layers, layers]; of a layer with itself between heads
  std::optional<LayerAgreement> against = {};
  std::vector<LayerAgreement> checkpoints = {};  // of each with the one before
  Index passage_first = 0, passage_end = 0;

  const std::string& text_at(Index token) const {
    return vocabulary.at(text.ids[static_cast<std::size_t>(token)]);
  }
};

/// The texts as windows for a model with groups. Throws std::runtime_error, one line, where the
/// model has none, or the texts have fewer tokens than a window.
TextWindows windows_for(const LoadedModel& model, std::span<const EvalText> texts, Index context);

/// Runs the texts through the model and describes its groups.
GroupsReport describe_groups(LoadedModel& model, const TextWindows& text, Index context,
                             const CollectProgress& progress = {});

/// Layer by layer, the mean over heads: where both have as many head by head, else each with each.
/// Throws std::invalid_argument where the layers are not as many.
LayerAgreement layer_agreement(std::span<const GroupAssignments> a,
                               std::span<const GroupAssignments> b);

nlohmann::ordered_json groups_to_json(const GroupsReport& report);

}  // namespace focus
