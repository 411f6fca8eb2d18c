#pragma once

#include <string>
#include <vector>

#include "focus/adapter.h"
#include "focus/attention/gate.h"
#include "focus/summary/key_groups.h"
#include "focus/summary/summary_attention.h"

namespace focus {

/// What a forward pass with Focus runs.
struct AttentionMode {
  enum class Kind { dense, soft, hard, summary };
  Kind kind = Kind::soft;
  int top_k = 1;  // hard: groups a token keeps; 0: none, which leaves the local window alone
  Balance balance = Balance::carried;
  HardGate hard_gate = HardGate::drop;
  SummaryOptions summary = {};  // summary: groups that are read, zones, what becomes of the rest
  // Of summary, where layers differ; else empty.
  std::vector<Index> top_groups_of_layer = {}, window_of_layer = {};

  /// "dense", "soft", "hard k=2", "hard k=2 keep", "local only", "summary m=2 w=32"
  std::string name() const;
  /// Of summary attention in a layer.
  SummaryOptions summary_of(Index layer) const;
};

/// Attention with summary columns as `config` has it.
AttentionMode summary_mode(const FocusConfig& config);

/// The gate and the tokens' sets of hard attention in `mode`.
GateOptions hard_gate_options(const FocusConfig& config, const AttentionMode& mode,
                              const Routing& routing);

/// What of a decoder the groups depend on.
struct FocusShape {
  Index hidden_size = 0, num_layers = 0;
  Index kv_heads = 0, head_dim = 0;  // of groups of keys
  static FocusShape of(const ModelConfig& config) {
    return {config.hidden_size, config.num_hidden_layers, config.num_key_value_heads,
            config.head_dim};
  }
};

/// Focus on all layers of a decoder: the adapter that a retrofit trains.
class FocusModel : public Adapter {
 public:
  FocusModel(const FocusConfig& config, const FocusShape& shape, Rng& rng);
  FocusModel(const FocusConfig& config, Index hidden_size, Index num_layers, Rng& rng)
      : FocusModel(config, FocusShape{hidden_size, num_layers}, rng) {}

  const FocusConfig& config() const { return config_; }
  const FocusShape& shape() const { return shape_; }
  bool groups_keys() const { return config_.routing == RoutingSpace::keys; }
  /// One a layer; of groups of tokens, and else none.
  std::vector<FocusLayer>& layers() { return layers_; }
  /// One a layer; of groups of keys, and else none.
  std::vector<KeyGroups>& key_groups() { return key_groups_; }

  /// What the next forward passes run.
  AttentionMode mode;
  /// What training step `place` runs: with balance `carried` the first steps of the first phase
  /// train with `sequence`.
  AttentionMode training_mode(const StepPlace& place) const;

  std::string_view kind() const override { return "focus"; }
  void compose(Decoder& decoder) override;
  void take_off() override { composed_.reset(); }
  void for_each_own(const std::function<void(const std::string&, Variable&)>& f) override;
  /// Centroids of keys learn in proportion to their spread, and columns' beta at half the rate.
  double lr_factor(const std::string& name) const override;
  /// Centroids that follow their tokens collect no gradient.
  void set_trainable(bool wanted) override;

  void begin_step(const StepPlace& place) override;
  /// update_centroids(), and take_auxiliary_loss().
  Variable after_forward() override;
  /// The groups of the last forward pass and the potentials that it moves the carried ones towards.
  std::vector<double> part_record() const override;
  void absorb(std::span<const double> record) override;
  /// Not where centroids follow their tokens.
  bool divides() const override;
  /// recluster()
  void end_step(std::int64_t steps_done) override { recluster(steps_done); }
  std::vector<GroupStatistics> step_groups() const override { return step_groups_; }
  void begin_validation() override;

  void start_counting() override;
  void stop_counting() override { gather_statistics = false; }
  AttentionCounts counts() const override;

  /// All of it in /focus.
  void write(StoreWriter& store, const std::string& base_fingerprint) override;
  void restore(const StoreReader& store) override;

  /// Lets the batch of the last forward pass move the centroids, where they follow their tokens
  /// (centroid_update average).
  void update_centroids();
  /// Places the centroids anew from it, where `steps` done make it due (recluster_every).
  void recluster(std::int64_t steps);
  /// Takes the layers' balance and entropy terms of the last forward pass with a graph, summed;
  /// undefined where the config has none. What a training step adds to its loss.
  Variable take_auxiliary_loss();

  /// What each layer's last forward pass routed, without its graph; empty before one.
  const std::vector<Routing>& last_routings() const { return last_; }
  /// The same of summary attention's classes, those of keys among them.
  const std::vector<KeyClasses>& last_classes() const { return last_classes_; }

  /// The groups that summary attention has in a layer, with potentials of `balance` where tokens
  /// are grouped; and what is added to their columns [kv_heads, num_groups].
  KeyClasses classes_of_layer(const MechanismInputs& in, Balance balance);
  Variable beta_of_layer(Index layer, Index kv_heads) const;

  /// While true, forward passes add to `statistics`.
  bool gather_statistics = false;
  std::vector<GroupStatistics> statistics;  // one a layer
  void reset_statistics();

  void visit(auto&& f) {
    if (groups_keys())
      f("layers", key_groups_);
    else
      f("layers", layers_);
  }

 private:
  Variable attend(const MechanismInputs& in);
  Variable attend_summary(const MechanismInputs& in, const SummaryOptions& options);
  void remember(std::size_t layer, const Routing& routing);
  /// The layer's squared error of attention outputs after o_proj, relative to the dense ones'.
  Variable layer_error(const MechanismInputs& in, const Variable& out, const Variable& dense) const;
  void gather_summary(const MechanismInputs& in, const KeyClasses& classes,
                      const SummaryReport& report, const SummaryOptions& options);
  void gather(const MechanismInputs& in, const Routing& routing, const GateOptions& options);
  Index to_route() const;

  FocusConfig config_;
  FocusShape shape_;
  std::vector<FocusLayer> layers_;
  std::vector<KeyGroups> key_groups_;
  std::vector<Routing> last_;             // of the last forward pass, without its graph
  std::vector<KeyClasses> last_classes_;  // the same, of groups of keys
  std::vector<Variable> auxiliary_;       // of each layer, with its graph, until it is taken
  std::vector<GroupStatistics> step_groups_;
  std::optional<ComposedMechanism> composed_;
  Decoder* decoder_ = nullptr;  // that it is composed onto
};

/// Makes every parameter collect a gradient, or none; centroids that follow their tokens do not.
inline void set_requires_grad(FocusModel& focus, bool wanted) { focus.set_trainable(wanted); }

}  // namespace focus
