#pragma once

#include <functional>
#include <string>
#include <vector>

#include "focus/method/grouping/grouping.h"
#include "focus/method/grouping/key_groups.h"

namespace focus {

/// Groups of keys: each key head's keys by the nearest of its centroids, fitted by k-means.
class KeyGrouping final : public Grouping {
 public:
  KeyGrouping(const FocusConfig& config, const FocusShape& shape, Rng& rng);

  std::string_view kind() const override { return "keys"; }
  std::vector<KeyGroups>& layers() { return layers_; }

  Index heads() const override { return heads_; }
  KeyClasses classes(const MechanismInputs& in, Balance balance) override;
  Variable beta(Index layer, Index kv_heads) const override;
  Index assignment_cost(const MechanismInputs& in) const override;
  GroupShares shares(const MechanismInputs& in, Balance balance) override;

  void visit_tensors(Index layer, const std::function<void(std::string_view, Tensor&)>& f) override;
  std::int64_t& updates(Index layer) override {
    return layers_[static_cast<std::size_t>(layer)].updates;
  }
  void visit_parameters(const std::function<void(const std::string&, Variable&)>& f) override;
  /// Centroids learn in proportion to their spread, beta at half the rate.
  double lr_factor(const std::string& name) const override;
  void set_trainable(bool wanted) override;

  Index tokens_to_fit(std::int64_t steps_done) const override;
  bool can_fit() const override { return true; }
  Tensor* head_needs(Index layer) override {
    if (settings_.head_budgets == HeadBudgets::equal) return nullptr;
    return &layers_[static_cast<std::size_t>(layer)].needs;
  }
  void fit(Index layer, const Tensor& keys, std::uint64_t seed) override;
  bool is_placed_at(std::int64_t step) const override;

  void visit(auto&& f) { f("layers", layers_); }

 private:
  KeySettings settings_;
  Index heads_;
  std::vector<KeyGroups> layers_;
};

}  // namespace focus
