#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "focus/method/grouping/grouping.h"

namespace focus {

/// Groups of tokens, the paper's: each layer routes its tokens by their input, and Sinkhorn or
/// carried potentials balance the groups.
class TokenGrouping final : public GroupingWith<FocusLayer> {
 public:
  TokenGrouping(const FocusConfig& config, const FocusShape& shape, Rng& rng);

  std::string_view kind() const override { return "tokens"; }
  /// What each layer's last forward pass routed, without its graph; empty before one.
  const std::vector<Routing>& last_routings() const { return last_; }

  GroupIds group_ids(const MechanismInputs& in, Balance balance) override;
  Routing route(const MechanismInputs& in, Balance balance) override;
  Index assignment_cost(const MechanismInputs& in) const override;
  GroupShares shares(const MechanismInputs& in, Balance balance) override;

  /// Centroids that follow their tokens collect no gradient.
  void set_trainable(bool wanted) override;

  /// The layers' balance and entropy terms; undefined where the config has none.
  Variable take_loss(Index layer) override { return std::exchange(loss_[layer], {}); }
  /// Moves the centroids where they follow their tokens (centroid_update average).
  void after_forward() override;
  void add_statistics(Index layer, const GroupIds&, GroupStatistics& to) const override {
    to.add(last_[layer]);
  }
  /// "assignments" [tokens, num_groups]
  std::pair<std::string, Tensor> last_groups(Index layer, const GroupIds& last) const override;
  /// The potentials of the last batch, centred.
  std::vector<double> state_update(Index layer) const override;
  void merge(Index layer, std::span<const double> state_update) override {
    absorb_potentials(layers_[layer], state_update, config_.tokens().carried_rate);
  }
  /// Not where centroids follow their tokens.
  bool divides() const override;
  /// Places the centroids by k-means of the last batch where that is due (recluster_every).
  void end_step(std::int64_t steps_done) override;

 private:
  Routing routed(const MechanismInputs& in, Balance balance);

  FocusConfig config_;
  std::vector<Routing> last_;   // of the last forward pass, without its graph
  std::vector<Variable> loss_;  // of each layer, with its graph, until it is taken
};

// What the paper tried before Sinkhorn (AblationSettings): ways to place the centroids of a layer
// other than by their gradient, from the routing vectors h W_g of a batch [tokens, routing_dim],
// and terms of the training loss that pull the groups of one layer towards equal size.

/// Moves each centroid towards the mean of the routing vectors of the tokens whose highest
/// assignment it is: (1 - rate) c + rate mean (the moving average of VQ-VAE, van den Oord et al.
/// 2017, arXiv 1711.00937, appendix A.1, of means rather than of sums). One without tokens stays.
void average_centroids(FocusLayer& layer, const Routing& routing, double rate);

/// Sets the centroids by spherical k-means of a batch (Dhillon and Modha 2001: clusters by the
/// angle alone, as equally long centroids divide the tokens), started by k-means++ (Arthur and
/// Vassilvitskii 2007) with this seed and run until nothing changes, at most 25 rounds. Each has
/// the mean length of those before, so that the assignments stay about as sharp. The carried
/// potentials start again from the same batch.
void recluster(FocusLayer& layer, const Routing& routing, const TokenSettings& settings,
               std::uint64_t seed);

/// The loss of the Switch Transformer (Fedus et al. 2021, arXiv 2101.03961, eq. 4 to 6) without its
/// weight: K sum_k f_k p_k, f_k the share of the tokens whose highest assignment is group k, p_k
/// the mean of g_k over the batch. 1 where both are equal, K where one group has all. No gradient
/// flows through f. [1]
Variable balance_loss(const Routing& routing);

/// How far an entropy lies below that of equal assignments, in nats: log K - H [1], >= 0.
/// mean: H of the mean of g over the batch, the term of Krause et al. 2010 (NIPS, regularized
/// information maximization) that keeps group_ids in use; token: the mean over tokens of H(g_i),
/// the confidence penalty of Pereyra et al. 2017 (arXiv 1701.06548). g [batch, seq_len, num_groups]
Variable entropy_loss(const Variable& g, EntropyOf of);

/// The terms that `settings` asks for, with their weights; undefined without any. [1]
Variable auxiliary_loss(const Routing& routing, const AblationSettings& settings);

}  // namespace focus
