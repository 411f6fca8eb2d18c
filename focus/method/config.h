#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/settings/config.h"
#include "focus/method/summary_settings.h"

namespace focus {

/// Groups of a layer's tokens at most: a token's mask of them is a word of bits.
constexpr int kMaxGroups = 64;

/// How a pair's affinity a = g_i . g_j acts on its score s.
enum class Gate {
  logit,    // s sigmoid(lambda a): the paper's Eq. 2; it does not prune (a score of 0 is not -inf)
  affinity  // s + log(a + floor): multiplies the pair's softmax weight by a; its limit is the mask
};
constexpr auto enum_names(Gate) { return enum_list("logit", "affinity"); }

/// Where the groups' log-potentials b come from.
enum class Balance {
  sequence,  // Sinkhorn over the tokens of the sequence: the paper's. Sees later tokens: not causal
  carried,   // a moving average over batches already seen: a constant, causal
  none       // b = 0, plain softmax: collapses; for ablation
};
constexpr auto enum_names(Balance) { return enum_list("sequence", "carried", "none"); }

/// Whose entropy the entropy term raises; the paper says that it tried one, not which.
enum class EntropyOf {
  mean,  // of the batch's mean assignment: groups of equal mass
  token  // of each token's assignment: none so sure that its gradient is gone
};
constexpr auto enum_names(EntropyOf) { return enum_list("mean", "token"); }

/// What moves the centroids.
enum class CentroidUpdate {
  gradient,
  average  // each follows the mean of its tokens' routing vectors, without a gradient
};
constexpr auto enum_names(CentroidUpdate) { return enum_list("gradient", "average"); }

/// What hard attention does with the affinity of the distant pairs it attends.
enum class HardGate { drop, keep };
constexpr auto enum_names(HardGate) { return enum_list("drop", "keep"); }

/// What a training step attends. The paper trains soft and leaves the rest open.
enum class Training {
  soft,    // every pair, through the gate
  hard,    // only the pairs of hard attention with train_top_k groups; the affinity that they keep
           // carries the gradient (straight-through), and a step costs what its pairs cost
  summary  // attention with summary tokens; the groups carry the gradient (straight-through)
};
constexpr auto enum_names(Training) { return enum_list("soft", "hard", "summary"); }

/// What training lowers.
enum class Objective {
  lm,                  // the text's cross-entropy
  logit_distillation,  // KL(teacher || student) of the predictions; the teacher is the base as it
                       // is, with dense attention and without a LoRA
  layer_distillation   // the squared error of each layer's attention output, relative to the
                       // teacher's. Where centroids alone are trained, on the teacher's inputs:
                       // no backward pass through the model
};
constexpr auto enum_names(Objective) {
  return enum_list("lm", "logit_distillation", "layer_distillation");
}

/// Which kind of the table of groupings (focus/method/grouping/grouping.h) makes the groups.
struct GroupingName {
  std::string name = "tokens";
  bool operator==(const GroupingName&) const = default;
};
void read_value(const ConfigNode& node, const Range& range, GroupingName& value);
std::string value_text(const GroupingName& value);
std::string type_text(const GroupingName& value);

/// The sections of the table's groupings, with their defaults.
std::vector<SettingsSection> grouping_sections();

/// Groups of tokens, the paper's: a layer's tokens routed by their input. Symbols are the paper's.
struct TokenSettings {
  int routing_dim = 16;     // d_g
  double temperature = 1;   // tau
  int sinkhorn_iters = 10;  // N
  Gate gate = Gate::affinity;
  double gate_steepness = 8;     // lambda, of the logit gate; not given in the paper
  double affinity_floor = 1e-6;  // keeps log(a) finite
  Balance balance = Balance::carried;
  double carried_rate = 0.1;  // of the potentials' moving average
  /// First steps trained with `sequence` before `carried`; none said: four fifths of all.
  std::optional<std::int64_t> sequence_steps = {};
  Index sinks = 0;  // first tokens that neither gate nor mask touches
  HardGate hard_gate = HardGate::keep;
  int train_top_k = 2;  // k of hard training; 1 has no other group to learn from

  template <class F>
  void visit(F&& f) {
    f("routing_dim", routing_dim, "d_g, width of the routing space");
    f("temperature", temperature, "tau, temperature of the assignments");
    f("sinkhorn_iters", sinkhorn_iters, "N, Sinkhorn rounds");
    f("gate", gate,
      "logit: the paper's Eq. 2; affinity: adds log(g_i . g_j), which converges to the hard mask");
    f("gate_steepness", gate_steepness, "lambda, weight of the logit gate");
    f("affinity_floor", affinity_floor, "added to the affinity before its logarithm");
    f("balance", balance,
      "sequence: Sinkhorn over the sequence (not causal); carried: potentials of earlier batches "
      "(causal); none: no balancing");
    f("carried_rate", carried_rate, "rate of the moving average of the carried potentials");
    f("sequence_steps", sequence_steps,
      "number of first steps with sequence balance before carried; null: four fifths of the steps "
      "(of two_phase's first phase)",
      {0, 1e12});
    f("sinks", sinks,
      "first tokens (attention sinks) that every token attends as with dense attention; the paper "
      "has none",
      {0, kMaxSinks});
    f("hard_gate", hard_gate,
      "whether hard attention keeps or drops log(g_i . g_j) of the attended pairs");
    f("train_top_k", train_top_k, "k, groups per token in hard training");
  }
  void validate() const;
};

/// Groups of keys: each key head's keys, by the nearest centroid.
struct KeySettings {
  std::optional<std::int64_t> fit_step = 0;  // step at which the centroids are fitted
  Index fit_tokens = 16384;
  HeadBudgets head_budgets = HeadBudgets::measured;

  template <class F>
  void visit(F&& f) {
    f("fit_step", fit_step, "step before which k-means fits the centroids; null: they stay random",
      {0, 1e12});
    f("fit_tokens", fit_tokens, "training tokens for that fit", {64, 1 << 24});
    f("head_budgets", head_budgets,
      "measured: heads get different numbers of groups, by the error measured in the fit, "
      "num_selected_groups on average; equal: each head selects num_selected_groups");
  }
};

/// What the paper tried against the collapse of groups before Sinkhorn, of groups of tokens.
struct AblationSettings {
  double balance_loss = 0;
  double entropy_loss = 0;
  EntropyOf entropy_of = EntropyOf::mean;
  bool stop_gradient = false;
  CentroidUpdate centroid_update = CentroidUpdate::gradient;
  double centroid_rate = 0.01;
  std::int64_t recluster_every = 0;

  template <class F>
  void visit(F&& f) {
    f("balance_loss", balance_loss,
      "weight of the Switch Transformer balance loss of each layer; 0: none");
    f("entropy_loss", entropy_loss, "weight of log K minus the entropy of entropy_of; 0: none");
    f("entropy_of", entropy_of, "mean: the batch's mean assignment; token: each token's");
    f("stop_gradient", stop_gradient, "stop gradients from the routing to the layer's input");
    f("centroid_update", centroid_update,
      "gradient: trained by the optimiser; average: each centroid follows the mean of its tokens' "
      "routing vectors");
    f("centroid_rate", centroid_rate, "rate of the moving average (centroid_update average)");
    f("recluster_every", recluster_every,
      "steps between k-means updates of the centroids on a batch's routing vectors; 0: never");
  }
  /// Whether anything but the gradient acts on the groups.
  bool balance() const {
    return balance_loss != 0 || entropy_loss != 0 || recluster_every != 0 ||
           centroid_update != CentroidUpdate::gradient;
  }
  void validate() const;
};

/// The method's settings, one for all layers (arXiv 2604.03260). What is of one grouping alone
/// is in its section.
struct FocusConfig {
  GroupingName grouping;
  int num_groups = 4;        // K
  Index local_window = 128;  // w: pairs with i - j <= w are always attended
  Training training = Training::soft;
  Objective objective = Objective::lm;
  double lm_weight = 0;
  SummarySettings summary;  // but its window and budgets of heads
  AblationSettings ablations;
  std::vector<SettingsSection> groupings = grouping_sections();

  template <class F>
  void visit(F&& f) {
    f("grouping", grouping,
      "tokens: each layer groups tokens by its input (the paper's method); keys: each key head "
      "groups its keys by nearest centroid, for summary attention; others: see their sections");
    f("num_groups", num_groups, "K, groups per layer; at most 64 with tokens", {1, kMaxKeyGroups});
    f("local_window", local_window, "w, pairs with i - j <= w are always attended");
    f("training", training,
      "soft: all pairs, gated; hard: only the pairs of the mask; summary: attention with summary "
      "tokens");
    f("objective", objective,
      "lm: cross-entropy; logit_distillation: KL(teacher || student) of the predictions; "
      "layer_distillation: squared error of each layer's attention output (retrofit: with no "
      "backward pass through the model). The teacher is the base with dense attention, without a "
      "LoRA");
    f("lm_weight", lm_weight, "weight of the cross-entropy that is added to a distillation's loss",
      {0, 1e6});
    f("summary", summary,
      "attention with summary tokens: each unselected group is represented by its mean key and "
      "value");
    for (SettingsSection& section : groupings) f(section.name, section.settings, section.help);
    f("ablations", ablations, "alternatives against group collapse, for groups of tokens");
  }

  /// The settings of a grouping by their type. Throws std::logic_error where the table has none.
  template <class Settings>
  const Settings& of() const {
    for (const SettingsSection& section : groupings)
      if (const auto* found = section.settings.get_if<Settings>()) return *found;
    throw std::logic_error("no grouping has these settings");
  }
  template <class Settings>
  Settings& of() {
    return const_cast<Settings&>(std::as_const(*this).of<Settings>());
  }
  const TokenSettings& tokens() const { return of<TokenSettings>(); }
  TokenSettings& tokens() { return of<TokenSettings>(); }
  const KeySettings& keys() const { return of<KeySettings>(); }
  KeySettings& keys() { return of<KeySettings>(); }

  /// Throws std::invalid_argument naming the key that is out of range.
  void validate() const;
};

}  // namespace focus
