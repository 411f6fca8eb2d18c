#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "autograd/tensor.h"

namespace focus {

/// Groups of a layer's tokens at most: a token's set of them is a word of bits.
constexpr int kMaxGroups = 64;
/// Groups of a head's keys at most, of which a token is in one: a byte.
constexpr int kMaxKeyGroups = 256;
/// First tokens that are always read, at most.
constexpr int kMaxSinks = 64;

/// How a pair's affinity a = g_i . g_j acts on its score s.
enum class Gate {
  logit,    // s sigmoid(lambda a): the paper's Eq. 2; it does not prune (a score of 0 is not -inf)
  affinity  // s + log(a + floor): multiplies the pair's softmax weight by a; its limit is the mask
};
constexpr auto enum_names(Gate) { return std::array<std::string_view, 2>{"logit", "affinity"}; }

/// Where the groups' log-potentials b come from.
enum class Balance {
  sequence,  // Sinkhorn over the tokens of the sequence: the paper's. Sees later tokens: not causal
  carried,   // a moving average over batches already seen: a constant, causal
  none       // b = 0, plain softmax: collapses; for ablation
};
constexpr auto enum_names(Balance) {
  return std::array<std::string_view, 3>{"sequence", "carried", "none"};
}

/// Whose entropy the entropy term raises; the paper says that it tried one, not which.
enum class EntropyOf {
  mean,  // of the batch's mean assignment: groups of equal mass
  token  // of each token's assignment: none so sure that its gradient is gone
};
constexpr auto enum_names(EntropyOf) { return std::array<std::string_view, 2>{"mean", "token"}; }

/// What moves the centroids.
enum class CentroidUpdate {
  gradient,
  average  // each follows the mean of its tokens' routing vectors, without a gradient
};
constexpr auto enum_names(CentroidUpdate) {
  return std::array<std::string_view, 2>{"gradient", "average"};
}

/// What hard attention does with the affinity of the distant pairs it attends.
enum class HardGate { drop, keep };
constexpr auto enum_names(HardGate) { return std::array<std::string_view, 2>{"drop", "keep"}; }

/// What a training step attends. The paper trains soft and leaves the rest open.
enum class Training {
  soft,    // every pair, through the gate
  hard,    // only the pairs of hard attention with train_top_k groups; the affinity that they keep
           // carries the gradient (straight-through), and a step costs what its pairs cost
  summary  // attention with summary columns; the classes carry the gradient (straight-through)
};
constexpr auto enum_names(Training) {
  return std::array<std::string_view, 3>{"soft", "hard", "summary"};
}

/// What is put into groups, and by what.
enum class RoutingSpace {
  hidden,  // a layer's tokens, by their input through W_g: the paper's
  keys     // each key head's keys, by the nearest centroid; for attention with summary columns
};
constexpr auto enum_names(RoutingSpace) {
  return std::array<std::string_view, 2>{"hidden", "keys"};
}

/// What becomes of the groups that a query does not read.
enum class Rest {
  summary,  // each is read as one column: its mean key and mean value
  drop      // they are left out
};
constexpr auto enum_names(Rest) { return std::array<std::string_view, 2>{"summary", "drop"}; }

/// Which groups a query of summary attention reads exactly.
enum class GroupChoice {
  mass,  // those of largest estimated mass
  own    // the group that its own token is in; of groups of tokens alone
};
constexpr auto enum_names(GroupChoice) { return std::array<std::string_view, 2>{"mass", "own"}; }

/// What training lowers.
enum class Objective {
  lm,     // the text's cross-entropy
  kl,     // KL(dense || sparse): from the predictions of the same model with dense attention
  layers  // the squared error of each layer's attention output, relative to the dense one's, on
          // the dense layers' inputs: no backward pass through the model
};
constexpr auto enum_names(Objective) {
  return std::array<std::string_view, 3>{"lm", "kl", "layers"};
}

/// The method's settings, one for all layers. Symbols are the paper's (arXiv 2604.03260).
struct FocusConfig {
  int num_groups = 4;         // K
  int routing_dim = 16;       // d_g
  double temperature = 1;     // tau
  int sinkhorn_iters = 10;    // N
  double gate_steepness = 8;  // lambda, of the logit gate; not given in the paper
  Index local_window = 128;   // w: pairs with i - j <= w are always attended
  Gate gate = Gate::affinity;
  Balance balance = Balance::carried;
  HardGate hard_gate = HardGate::keep;
  double affinity_floor = 1e-6;       // keeps log(a) finite
  double carried_rate = 0.1;          // of the potentials' moving average
  std::int64_t sequence_steps = 400;  // first steps trained with `sequence` before `carried`
  Training training = Training::soft;
  int train_top_k = 2;  // k of hard training; 1 has no other group to learn from
  // Attention with summary columns (focus/summary).
  RoutingSpace routing = RoutingSpace::hidden;
  int read_groups = 2;                        // m: groups that a query reads exactly
  std::optional<int> train_read_groups = {};  // m of training; null: read_groups
  GroupChoice choice = GroupChoice::mass;
  Index block = 32;  // B: queries that share a far zone
  Index sinks = 1;   // s: first tokens, always read
  Rest rest = Rest::summary;
  Objective objective = Objective::lm;
  std::optional<std::int64_t> fit_step = 0;  // step at which keys' centroids are fitted
  Index fit_tokens = 16384;
  // What the paper tried against one group's dominance before Sinkhorn; for ablation.
  double balance_loss = 0;
  double entropy_loss = 0;
  EntropyOf entropy_of = EntropyOf::mean;
  bool stop_gradient = false;
  CentroidUpdate centroid_update = CentroidUpdate::gradient;
  double centroid_rate = 0.01;
  std::int64_t recluster_every = 0;

  template <class F>
  void visit(F&& f) {
    f("num_groups", num_groups, "K, groups in each layer; more than 64 of keys only",
      {1, kMaxKeyGroups});
    f("routing_dim", routing_dim, "d_g, width of the routing space");
    f("temperature", temperature, "tau of the assignments");
    f("sinkhorn_iters", sinkhorn_iters, "N, Sinkhorn rounds");
    f("gate_steepness", gate_steepness, "lambda of the logit gate");
    f("local_window", local_window, "w, pairs with i - j <= w are always attended");
    f("gate", gate,
      "logit: the paper's Eq. 2; affinity: adds log(g_i . g_j), whose limit is the hard mask");
    f("balance", balance,
      "sequence: Sinkhorn over the sequence (not causal); carried: potentials of batches seen "
      "before (causal); none");
    f("hard_gate", hard_gate,
      "what hard attention does with log(g_i . g_j) of the pairs it attends");
    f("affinity_floor", affinity_floor, "added to the affinity before its logarithm");
    f("carried_rate", carried_rate, "rate of the carried potentials' moving average");
    f("sequence_steps", sequence_steps,
      "first steps that train with sequence balance before carried");
    f("training", training, "soft: every pair through the gate; hard: only the mask's pairs");
    f("train_top_k", train_top_k, "k of hard training");
    f("routing", routing,
      "hidden: a layer's tokens are grouped by their input (the paper's); keys: each key head's "
      "keys by the nearest centroid, for attention with summary columns");
    f("read_groups", read_groups, "m, groups that a query of summary attention reads exactly",
      {0, kMaxKeyGroups});
    f("train_read_groups", train_read_groups, "m of summary training; null: read_groups",
      {0, kMaxKeyGroups});
    f("choice", choice,
      "mass: a query reads the read_groups groups of largest estimated mass; own: that of its own "
      "token (hidden routing)");
    f("block", block,
      "queries that share the far zone of summary attention: it ends local_window before them",
      {1, 1 << 20});
    f("sinks", sinks, "first tokens that summary attention always reads, in no group", {0, 64});
    f("rest", rest,
      "what becomes of the groups that a query does not read: one column each, or nothing");
    f("objective", objective,
      "lm: cross-entropy; kl: KL(dense || sparse) of the predictions; layers: squared error of "
      "each "
      "layer's attention output, without a backward pass through the model");
    f("fit_step", fit_step,
      "step before which the centroids of keys are fitted by k-means; null: they stay random",
      {0, 1e12});
    f("fit_tokens", fit_tokens, "training tokens that they are fitted on", {64, 1 << 24});
    f("balance_loss", balance_loss,
      "weight of the Switch Transformer's balance loss of each layer; 0: none");
    f("entropy_loss", entropy_loss, "weight of log K minus the entropy of entropy_of; 0: none");
    f("entropy_of", entropy_of, "mean: the batch's mean assignment; token: each token's");
    f("stop_gradient", stop_gradient, "no gradient flows from the routing into the layer's input");
    f("centroid_update", centroid_update,
      "gradient; average: each centroid follows the mean of its tokens' routing vectors");
    f("centroid_rate", centroid_rate, "rate of centroid_update average");
    f("recluster_every", recluster_every,
      "steps between k-means of a batch's routing vectors that place the centroids anew; 0: never");
  }

  /// Throws std::invalid_argument naming the key that is out of range.
  void validate() const;

 private:
  void validate_summary() const;
};

}  // namespace focus
