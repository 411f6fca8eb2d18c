#pragma once

#include <string>
#include <vector>

#include "focus/attention/gate.h"
#include "focus/attention/pair_counts.h"
#include "focus/routing/routing.h"
#include "layers/decoder.h"

namespace focus {

/// What a forward pass with Focus runs.
struct AttentionMode {
  enum class Kind { dense, soft, hard };
  Kind kind = Kind::soft;
  int top_k = 1;  // hard: groups a token keeps; 0: none, which leaves the local window alone
  Balance balance = Balance::carried;
  HardGate hard_gate = HardGate::drop;

  /// "dense", "soft", "hard k=2", "hard k=2 keep", "local only"
  std::string name() const;
};

/// The gate and the tokens' sets of hard attention in `mode`.
GateOptions hard_gate_options(const FocusConfig& config, const AttentionMode& mode,
                              const Routing& routing);

/// What the routing of one layer did, summed over the tokens it saw.
struct GroupStatistics {
  std::vector<std::int64_t> sizes;  // tokens whose highest assignment is group g
  std::int64_t tokens = 0;
  double entropy = 0;     // sum over tokens of -sum_k g log g, in nats
  double confidence = 0;  // sum over tokens of max_k g
  PairCounts pairs;

  /// Adds the tokens of a batch to `sizes` and `tokens`, the rest is left alone.
  void add_sizes(const Routing& routing);
  /// The largest group's share; 1 / num_groups is perfect balance.
  double dominance() const;
};

/// Focus on all layers of a decoder: the adapter that a retrofit trains.
class FocusModel {
 public:
  FocusModel(FocusConfig config, Index hidden_size, Index num_layers, Rng& rng);
  FocusModel(const FocusModel&) = delete;
  FocusModel& operator=(const FocusModel&) = delete;

  const FocusConfig& config() const { return config_; }
  std::vector<FocusLayer>& layers() { return layers_; }

  /// Makes every layer of the decoder attend through this model, which must outlive it.
  void compose(Decoder& decoder);

  /// What the next forward passes run.
  AttentionMode mode;

  /// Lets the batch of the last forward pass enter the carried potentials.
  void update_potentials();

  /// Lets it move the centroids, where they follow their tokens (centroid_update average).
  void update_centroids();
  /// Places the centroids anew from it, where `steps` done make it due (recluster_every).
  void recluster(std::int64_t steps);
  /// Takes the layers' balance and entropy terms of the last forward pass with a graph, summed;
  /// undefined where the config has none. What a training step adds to its loss.
  Variable take_auxiliary_loss();

  /// What each layer's last forward pass routed, without its graph; empty before one.
  const std::vector<Routing>& last_routings() const { return last_; }

  /// While true, forward passes add to `statistics`.
  bool gather_statistics = false;
  std::vector<GroupStatistics> statistics;  // one a layer
  void reset_statistics();

  void visit(auto&& f) { f("layers", layers_); }

 private:
  Variable attend(const MechanismInputs& in);
  void gather(const MechanismInputs& in, const Routing& routing, const GateOptions& options);

  FocusConfig config_;
  std::vector<FocusLayer> layers_;
  std::vector<Routing> last_;        // of the last forward pass, without its graph
  std::vector<Variable> auxiliary_;  // of each layer, with its graph, until it is taken
};

/// Makes every parameter collect a gradient, or none; centroids that follow their tokens do not.
void set_requires_grad(FocusModel& focus, bool wanted);

}  // namespace focus
