#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "focus/method/grouping/grouping.h"

namespace focus {

/// Groups of tokens, the paper's: each layer routes its tokens by their input, and Sinkhorn or
/// carried potentials balance the groups.
class TokenGrouping final : public Grouping {
 public:
  TokenGrouping(const FocusConfig& config, const FocusShape& shape, Rng& rng);

  std::string_view kind() const override { return "tokens"; }
  std::vector<FocusLayer>& layers() { return layers_; }
  /// What each layer's last forward pass routed, without its graph; empty before one.
  const std::vector<Routing>& last_routings() const { return last_; }

  GroupIds group_ids(const MechanismInputs& in, Balance balance) override;
  Routing route(const MechanismInputs& in, Balance balance) override;
  Index assignment_cost(const MechanismInputs& in) const override;
  GroupShares shares(const MechanismInputs& in, Balance balance) override;

  void visit_tensors(Index layer, const std::function<void(std::string_view, Tensor&)>& f) override;
  std::int64_t& updates(Index layer) override { return layer_of(layer).updates; }
  void visit_parameters(const std::function<void(const std::string&, Variable&)>& f) override;
  /// Centroids that follow their tokens collect no gradient.
  void set_trainable(bool wanted) override;

  /// The layers' balance and entropy terms; undefined where the config has none.
  Variable take_loss(Index layer) override;
  /// Moves the centroids where they follow their tokens (centroid_update average).
  void after_forward() override;
  void add_statistics(Index layer, const GroupIds& last, GroupStatistics& to) const override;
  /// "assignments" [tokens, num_groups]
  std::pair<std::string, Tensor> last_groups(Index layer, const GroupIds& last) const override;
  /// The potentials of the last batch, centred.
  std::vector<double> state_update(Index layer) const override;
  void merge(Index layer, std::span<const double> state_update) override;
  /// Not where centroids follow their tokens.
  bool divides() const override;
  /// Places the centroids by k-means of the last batch where that is due (recluster_every).
  void end_step(std::int64_t steps_done) override;

  void visit(auto&& f) { f("layers", layers_); }

 private:
  FocusLayer& layer_of(Index layer) { return layers_[static_cast<std::size_t>(layer)]; }
  Routing routed(const MechanismInputs& in, Balance balance);
  void remember(std::size_t layer, const Routing& routing);

  FocusConfig config_;
  std::vector<FocusLayer> layers_;
  std::vector<Routing> last_;   // of the last forward pass, without its graph
  std::vector<Variable> loss_;  // of each layer, with its graph, until it is taken
};

}  // namespace focus
