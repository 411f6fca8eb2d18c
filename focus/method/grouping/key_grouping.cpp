#include "focus/method/grouping/key_grouping.h"

#include <algorithm>
#include <cmath>

namespace focus {

KeyGrouping::KeyGrouping(const FocusConfig& config, const FocusShape& shape, Rng& rng)
    : Grouping(config.num_groups), settings_(config.keys()), heads_(shape.kv_heads) {
  for (Index i = 0; i < shape.num_layers; ++i) {
    layers_.push_back(make_key_groups(num_groups(), shape.kv_heads, shape.head_dim, rng));
    layers_.back().needs = Tensor({shape.heads});
    std::ranges::fill(layers_.back().needs.span(), Real(1));
  }
}

KeyClasses KeyGrouping::classes(const MechanismInputs& in, Balance) {
  const KeyGroups& groups = layers_[static_cast<std::size_t>(in.layer)];
  // The keys are a constant of their classes: what they change in them is not what they are for.
  const Variable keys(in.k.value());
  if (grad_enabled() && groups.centroids.requires_grad())
    return classes_of(class_scores(keys, groups.centroids, groups.bias),
                      static_cast<double>(groups.temperature[0]));
  return nearest_classes(keys.value(), groups.centroids.value(), groups.bias.value());
}

Variable KeyGrouping::beta(Index layer, Index) const {
  return layers_[static_cast<std::size_t>(layer)].beta;
}

Index KeyGrouping::assignment_cost(const MechanismInputs& in) const {
  return in.k.dim(2) * num_groups() * in.k.dim(3);
}

GroupShares KeyGrouping::shares(const MechanismInputs& in, Balance) {
  const KeyGroups& groups = layers_[static_cast<std::size_t>(in.layer)];
  const Variable keys(in.k.value());
  KeyClasses classes = nearest_classes(keys.value(), groups.centroids.value(), groups.bias.value());
  const Tensor z = class_scores(keys, groups.centroids, groups.bias).value();
  const auto tau = static_cast<double>(groups.temperature[0]);
  GroupShares found{.heads = classes.heads,
                    .groups = classes.groups,
                    .classes = std::move(classes.classes),
                    .shares = std::vector<double>(static_cast<std::size_t>(z.size()))};
  for (Index row = 0; row < z.rows(); ++row) {
    const Real* scores = z.data() + row * z.cols();
    double* shares = found.shares.data() + row * z.cols();
    const auto top = static_cast<double>(*std::max_element(scores, scores + z.cols()));
    double sum = 0;
    for (Index k = 0; k < z.cols(); ++k)
      sum += shares[k] = std::exp((static_cast<double>(scores[k]) - top) / tau);
    for (Index k = 0; k < z.cols(); ++k) shares[k] /= sum;
  }
  return found;
}

void KeyGrouping::visit_tensors(Index layer,
                                const std::function<void(std::string_view, Tensor&)>& f) {
  KeyGroups& of = layers_[static_cast<std::size_t>(layer)];
  f("centroids", of.centroids.mutable_value());
  f("bias", of.bias.mutable_value());
  f("beta", of.beta.mutable_value());
  f("temperature", of.temperature);
  f("spread", of.spread);
  if (head_needs(layer) != nullptr) f(kNeeds, of.needs);
}

void KeyGrouping::visit_parameters(const std::function<void(const std::string&, Variable&)>& f) {
  for_each_parameter(*this, f);
}

double KeyGrouping::lr_factor(const std::string& name) const {
  if (name.ends_with(".beta")) return 0.5;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (name == fmt::format("layers.{}.centroids", i))
      return 2 * static_cast<double>(layers_[i].spread[0]);
  return 1;
}

void KeyGrouping::set_trainable(bool wanted) {
  for (KeyGroups& groups : layers_)
    groups.visit([wanted](const char*, Variable& p) { p.set_requires_grad(wanted); });
}

Index KeyGrouping::tokens_to_fit(std::int64_t steps_done) const {
  if (layers_.front().updates > 0) return 0;
  return settings_.fit_step && *settings_.fit_step <= steps_done ? settings_.fit_tokens : 0;
}

void KeyGrouping::fit(Index layer, const Tensor& keys, std::uint64_t seed) {
  fit_key_groups(layers_[static_cast<std::size_t>(layer)], keys,
                 seed + static_cast<std::uint64_t>(layer * heads_));
}

bool KeyGrouping::is_placed_at(std::int64_t step) const {
  return step >= settings_.fit_step.value_or(0);
}

GroupingKind key_grouping() {
  return {.name = "keys",
          .help = "groups of keys: each key head's keys, by the nearest centroid",
          .defaults = KeySettings{},
          .most_groups = kMaxKeyGroups,
          .groups_tokens = false,
          .is_per_head = true,
          .tensors =
              [](const FocusConfig& config, const FocusShape& shape) {
                const Index groups = config.num_groups, heads = shape.kv_heads;
                std::vector<LayerTensor> tensors{{"centroids", {heads, groups, shape.head_dim}},
                                                 {"bias", {heads, groups}},
                                                 {"beta", {heads, groups}},
                                                 {"temperature", {1}, false},
                                                 {"spread", {1}, false}};
                if (config.keys().head_budgets == HeadBudgets::measured)
                  tensors.push_back({kNeeds, {shape.heads}, false});
                return tensors;
              },
          .make = [](const FocusConfig& config, const FocusShape& shape,
                     Rng& rng) -> std::unique_ptr<Grouping> {
            return std::make_unique<KeyGrouping>(config, shape, rng);
          },
          .needs_no_step = [](const FocusConfig& config) { return config.keys().fit_step == 0; },
          .attention_of = [](const FocusConfig& config) -> AttentionSpec {
            return {.summary = {.head_budgets = config.keys().head_budgets}};
          }};
}

}  // namespace focus
