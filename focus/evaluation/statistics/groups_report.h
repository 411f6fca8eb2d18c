#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "focus/evaluation/evaluation.h"
#include "focus/evaluation/statistics/agreement.h"
#include "focus/evaluation/statistics/far_pairs.h"
#include "focus/evaluation/statistics/statistics.h"

// All that `focus groups` finds out, for a page and for other programs.
namespace focus {

/// What is asked of a text's groups.
struct GroupsSettings {
  std::string separator = {};
  Index context = 0, max_documents = 0, max_tokens = 0;
  std::int64_t min_count = 5;
  Index typical = 8, far_pairs = 8, parts = 8;
  Index passage = 160;

  template <class F>
  void visit(F&& f) {
    f("separator", separator,
      "separator between the documents of a file, such as <|endoftext|>; empty: each file is one");
    f("context", context,
      "tokens per window, without overlap; 0: 512, or the model's positions if fewer",
      {0, 1 << 22});
    f("max_documents", max_documents, "use only the first N documents; 0: all", {0, 1e9});
    f("max_tokens", max_tokens, "use only the first N tokens of each document; 0: all", {0, 1e12});
    f("min_count", min_count, "least count of a token in a group to be listed as typical",
      {1, 1e9});
    f("typical", typical, "number of typical tokens listed per group", {1, 1000});
    f("far_pairs", far_pairs, "number of distant pairs listed per layer", {0, 1000});
    f("parts", parts, "number of pieces of a single document for which group sizes are compared",
      {1, 1000});
    f("passage", passage, "tokens in the passage coloured by group", {0, 100000});
  }
};

/// What is known of one grouping; vectors are [groups].
struct GroupingDetails {
  std::vector<std::int64_t> sizes;
  std::vector<double> confidence;
  PartBalance parts;
  std::vector<TypicalTokens> typical;
  Purity purity;
  FarAffinity far;
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

/// A token where it stands.
struct Excerpt {
  std::string before, token, after;
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
  std::vector<Index> parts = {};                        // the first token of each, and the end
  std::vector<GroupAssignments> groupings = {};         // [layers, heads]
  std::vector<GroupingDetails> details = {};            // the same
  std::vector<Agreement> between = {};  // [layers, layers]; of a layer with itself between heads
  std::optional<LayerAgreement> against = {};
  std::vector<LayerAgreement> checkpoints = {};  // of each with the one before
  Index passage_first = 0, passage_end = 0;

  const std::string& text_at(Index token) const {
    return vocabulary.at(text.ids[static_cast<std::size_t>(token)]);
  }
  /// A token with those around it in its document, special ones left out.
  Excerpt excerpt(Index token, Index around) const;
};

/// The texts as windows for a model with groups. Throws std::runtime_error, one line, where the
/// model has none, or the texts have fewer tokens than a window.
TextWindows windows_for(const LoadedModel& model, std::span<const EvalText> texts, Index context);

/// Runs the texts through the model and describes its groups. `settings` say the context.
GroupsReport describe_groups(LoadedModel& model, const TextWindows& text,
                             const GroupsSettings& settings, const CollectProgress& progress = {});

/// Layer by layer, the mean over heads: where both have as many head by head, else each with each.
/// Throws std::invalid_argument where the layers are not as many.
LayerAgreement layer_agreement(std::span<const GroupAssignments> a,
                               std::span<const GroupAssignments> b);

nlohmann::ordered_json groups_to_json(const GroupsReport& report);

}  // namespace focus
