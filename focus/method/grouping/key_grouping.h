#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/settings/members.h"
#include "focus/method/grouping/grouping.h"

namespace focus {

/// One layer's groups of keys, each key head's its own.
struct KeyGroups {
  Variable centroids;     // C [kv_heads, num_groups, head_dim]
  Variable bias;          // b [kv_heads, num_groups]: added to a group's score of a key
  Variable summary_bias;  // [kv_heads, num_groups]: added to a summary token's score
  Tensor temperature;     // tau [1] of the soft group_ids that the backward pass goes through
  Tensor spread;          // [1]: standard deviation of the centroids as they were fitted
  // Measured, of each query head [heads]; undefined where all have the same budget:
  Tensor needs;              // see head_budgets(); 1 before
  Tensor summary_width;      // SummarySettings::summary_width; 0 before
  std::int64_t updates = 0;  // keys of a head that the centroids were fitted on; 0: random
  void visit(auto&& f) {
    FOCUS_MEMBERS(f, centroids, bias);
    f("beta", summary_bias);
    FOCUS_MEMBERS(f, temperature, spread);
    f(kNeeds.data(), needs);
    f(kSummaryWidth.data(), summary_width);
  }
};

/// C ~ normal(0, 1), b and summary_bias 0, tau and spread 1.
KeyGroups make_key_groups(Index num_groups, Index kv_heads, Index head_dim, Rng& rng);

/// Fits the centroids by k-means of keys as attention sees them (after their norm, bias and rotary
/// turn), key head by key head: K keys drawn at random, then 12 rounds of Lloyd's; a centroid
/// without keys becomes a random key. b and summary_bias become 0, and tau such that a key's
/// largest soft class is 0.85 in the mean. The same bits for any number of threads. keys [tokens,
/// kv_heads, head_dim]. Throws std::invalid_argument for fewer tokens than groups.
void fit_key_groups(KeyGroups& groups, const Tensor& keys, std::uint64_t seed);

/// Groups of keys: each key head's keys by the nearest of its centroids, fitted by k-means.
class KeyGrouping final : public GroupingWith<KeyGroups> {
 public:
  KeyGrouping(const FocusConfig& config, const FocusShape& shape, Rng& rng);

  std::string_view kind() const override { return "keys"; }
  Index heads() const override { return heads_; }
  GroupIds group_ids(const MechanismInputs& in, Balance balance) override;
  Variable summary_bias(Index layer, Index) const override { return layers_[layer].summary_bias; }
  Tensor key_centroids(Index layer) const override { return layers_[layer].centroids.value(); }
  Index assignment_cost(const MechanismInputs& in) const override {
    return in.k.dim(2) * num_groups() * in.k.dim(3);
  }
  GroupShares shares(const MechanismInputs& in, Balance balance) override;

  /// Centroids learn in proportion to their spread, summary_bias at half the rate.
  double lr_factor(const std::string& name) const override;

  Index tokens_to_fit(std::int64_t steps_done) const override;
  bool can_fit() const override { return true; }
  Tensor* head_needs(Index layer) override {
    return layers_[layer].needs.defined() ? &layers_[layer].needs : nullptr;
  }
  Tensor* summary_width(Index layer) override {
    return layers_[layer].summary_width.defined() ? &layers_[layer].summary_width : nullptr;
  }
  void fit(Index layer, const Tensor& keys, std::uint64_t seed) override;
  bool is_placed_at(std::int64_t step) const override {
    return step >= settings_.fit_step.value_or(0);
  }

 private:
  KeySettings settings_;
  Index heads_;
  /// group_constants() of each layer, as a sequence's first pass found them: a later one would read
  /// all centroids for them once more.
  std::vector<std::vector<Real>> constants_;
};

}  // namespace focus
