#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/settings/config.h"
#include "focus/method/config.h"
#include "focus/method/grouping/group_ids.h"
#include "focus/method/grouping/group_statistics.h"
#include "focus/method/grouping/routing.h"
#include "focus/method/spec.h"
#include "layers/decoder.h"

namespace focus {

/// What of a decoder the groups depend on.
struct FocusShape {
  Index hidden_size = 0, num_layers = 0;
  Index kv_heads = 0, head_dim = 0;  // of groups that each key head has of its own
  Index heads = 0;                   // query heads; where each has a budget of its own
  static FocusShape of(const ModelConfig& config) {
    return {config.hidden_size, config.num_hidden_layers, config.num_key_value_heads,
            config.head_dim, config.num_attention_heads};
  }
};

/// The names in files of what is measured of heads: Grouping::head_needs() and summary_width().
constexpr std::string_view kNeeds = "needs", kSummaryWidth = "summary_width";

/// A tensor that a grouping has in each layer, by its name in files.
struct LayerTensor {
  std::string_view name;
  Shape shape;
  bool is_parameter = true;  // trained; else state that follows the data
};

/// A window's groups in one layer, for reports.
struct GroupShares {
  Index heads = 1, groups = 0;
  std::vector<std::uint8_t> ids;  // [tokens, heads]
  std::vector<double> shares;     // [tokens, heads, groups]; rows sum to 1
};

/// Who groups what in the layers of a decoder: tokens by trained routing, keys by the nearest
/// centroid, or whatever else has a row in the table. FocusModel asks it for groups and runs the
/// attention, which is the same for all.
///
/// A training step calls after_forward() at the end of its forward pass, take_loss() for each
/// layer, then merge() for each part of the step, then end_step().
class Grouping {
 public:
  explicit Grouping(Index num_groups) : num_groups_(num_groups) {}
  Grouping(const Grouping&) = delete;
  Grouping& operator=(const Grouping&) = delete;
  virtual ~Grouping() = default;

  /// Its name in the table.
  virtual std::string_view kind() const = 0;
  /// K, in each layer or each of its heads().
  Index num_groups() const { return num_groups_; }
  /// Key heads of a layer that have groups of their own; 1: one grouping for all.
  virtual Index heads() const { return 1; }

  /// The group of each token or key of a layer, for summary attention.
  virtual GroupIds group_ids(const MechanismInputs& in, Balance balance) = 0;
  /// Added to the scores of the groups' summary tokens [kv_heads, num_groups].
  virtual Variable summary_bias(Index layer, Index kv_heads) const;
  /// The means of the groups' keys [kv_heads, num_groups, head_dim]; undefined where unknown.
  virtual Tensor key_centroids(Index /*layer*/) const { return {}; }
  /// The assignments of a layer's tokens, for soft and hard attention: those of group_ids(), one
  /// for the token's group and zero for the others. Only of a grouping of tokens.
  virtual Routing route(const MechanismInputs& in, Balance balance);
  /// Multiply-adds that find the groups of one token in a layer.
  virtual Index assignment_cost(const MechanismInputs& in) const = 0;
  /// The groups of a layer's tokens with all shares, without a graph.
  virtual GroupShares shares(const MechanismInputs& in, Balance balance);

  /// Calls f(name, tensor) for each LayerTensor of a layer, in their order.
  virtual void visit_tensors(Index, const std::function<void(std::string_view, Tensor&)>&) {}
  /// What has entered a layer's state: batches, or keys that it was fitted on.
  virtual std::int64_t& updates(Index layer) = 0;
  /// Calls f("layers.0.centroids", parameter) for each parameter.
  virtual void visit_parameters(const std::function<void(const std::string&, Variable&)>&) {}
  /// Share of the run's learning rate that the parameter of that name learns with.
  virtual double lr_factor(const std::string&) const { return 1; }
  /// Makes those that are trained by gradients collect one, or none.
  virtual void set_trainable(bool) {}

  /// Tokens whose keys fit() needs before step `steps_done`; 0: none. And whether it can be fitted.
  virtual Index tokens_to_fit(std::int64_t /*steps_done*/) const { return 0; }
  virtual bool can_fit() const { return false; }
  /// Tokens of the windows that it was fitted on; 0: not known, or not fitted.
  std::int64_t& fitted_context() { return fitted_context_; }
  /// The need of each query head of a layer, from which its budget of groups follows
  /// (head_budgets()); null where all heads have the same.
  virtual Tensor* head_needs(Index /*layer*/) { return nullptr; }
  /// SummarySettings::summary_width of a layer; null where no width counts.
  virtual Tensor* summary_width(Index /*layer*/) { return nullptr; }
  /// Places a layer's groups by keys [tokens, kv_heads, head_dim], as attention sees them.
  virtual void fit(Index layer, const Tensor& keys, std::uint64_t seed);
  /// Whether there are groups at that step; where not, the model attends densely.
  virtual bool is_placed_at(std::int64_t /*step*/) const { return true; }

  /// Takes the loss terms of a layer's last forward pass with a graph; undefined where none are.
  virtual Variable take_loss(Index /*layer*/) { return {}; }
  /// Lets the batch of the last forward pass move what follows its tokens.
  virtual void after_forward() {}
  /// Adds the groups of a layer's last forward pass; `last` are its group_ids in summary attention.
  virtual void add_statistics(Index layer, const GroupIds& last, GroupStatistics& to) const;
  /// The same as a tensor for files, with its name: "classes" [tokens, heads].
  virtual std::pair<std::string, Tensor> last_groups(Index layer, const GroupIds& last) const;
  /// What the last forward pass moves a layer's state towards; empty: nothing. And moves it.
  virtual std::vector<double> state_update(Index /*layer*/) const { return {}; }
  virtual void merge(Index /*layer*/, std::span<const double> /*state_update*/) {}
  /// Whether the parts of a step may be divided among processes.
  virtual bool divides() const { return true; }
  virtual void end_step(std::int64_t /*steps_done*/) {}

 private:
  const Index num_groups_;
  std::int64_t fitted_context_ = 0;
};

/// What the groupings of the table derive from. L, a layer, has `updates` and a visit of its
/// tensors in the order of files: parameters as Variables, state as Tensors, undefined where none.
template <class L>
class GroupingWith : public Grouping {
 public:
  using Grouping::Grouping;
  std::vector<L>& layers() { return layers_; }

  void visit_tensors(Index layer,
                     const std::function<void(std::string_view, Tensor&)>& f) override {
    layers_[layer].visit([&]<class T>(const std::string& name, T& x) {
      if constexpr (std::is_same_v<T, Variable>)
        f(name, x.mutable_value());
      else if (x.defined())
        f(name, x);
    });
  }
  std::int64_t& updates(Index layer) override { return layers_[layer].updates; }
  void visit_parameters(const std::function<void(const std::string&, Variable&)>& f) override {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      layers_[i].visit([&]<class T>(const std::string& name, T& x) {
        if constexpr (std::is_same_v<T, Variable>) f(fmt::format("layers.{}.{}", i, name), x);
      });
  }
  void set_trainable(bool wanted) override {
    visit_parameters([=](const std::string&, Variable& p) { p.set_requires_grad(wanted); });
  }

 protected:
  std::vector<L> layers_;
};

/// A kind of grouping: a row of the table.
struct GroupingKind {
  std::string_view name;  // focus.grouping, and the section of its settings
  std::string_view help;  // one line
  AnySettings defaults;
  int most_groups = kMaxGroups;
  /// Each token is in a group, so a query has its own: it has soft and hard attention and selection
  /// `own`. Else summary attention only.
  bool groups_tokens = true;
  /// Its centroids are trained by gradient with a balance: focus.ablations apply.
  bool is_routed = false;
  /// Its tensors are a key head's: files say num_key_value_heads and head_dim.
  bool is_per_head = false;
  /// Its tensors in each layer, in the order of files.
  std::vector<LayerTensor> (*tensors)(const FocusConfig&, const FocusShape&) = nullptr;
  std::unique_ptr<Grouping> (*make)(const FocusConfig&, const FocusShape&, Rng&) = nullptr;
  /// Whether there are groups without a training step; null: always.
  bool (*needs_no_step)(const FocusConfig&) = nullptr;
  /// What its settings say of attention: balance, gate, sinks, budgets of heads.
  AttentionSpec (*attention_of)(const FocusConfig&) = [](const FocusConfig&) {
    return AttentionSpec{};
  };
};

/// GroupingKind::make of a grouping G.
template <class G>
std::unique_ptr<Grouping> make_grouping(const FocusConfig& config, const FocusShape& shape,
                                        Rng& rng) {
  return std::make_unique<G>(config, shape, rng);
}

/// All kinds, the paper's first.
const std::vector<GroupingKind>& grouping_kinds();
/// Adds a kind of your program's own, before its first FocusConfig. Throws std::invalid_argument
/// where the name is taken.
void add_grouping(GroupingKind kind);
/// The config's. A config cannot name one that the table has not.
const GroupingKind& grouping_kind(const FocusConfig& config);

}  // namespace focus
