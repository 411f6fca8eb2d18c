#include "focus/method/grouping/token_grouping.h"

#include <bit>
#include <utility>

#include "focus/method/documents.h"
#include "focus/method/grouping/ablations.h"

namespace focus {
namespace {

bool keeps_vectors(const FocusConfig& config) {
  return config.ablations.centroid_update == CentroidUpdate::average ||
         config.ablations.recluster_every > 0;
}

std::vector<std::uint8_t> best_groups(const Routing& routing) {
  std::vector<std::uint8_t> group_ids;
  for (const std::uint64_t mask : membership(routing, 1))
    group_ids.push_back(static_cast<std::uint8_t>(std::countr_zero(mask)));
  return group_ids;
}

}  // namespace

TokenGrouping::TokenGrouping(const FocusConfig& config, const FocusShape& shape, Rng& rng)
    : Grouping(config.num_groups), config_(config) {
  for (Index i = 0; i < shape.num_layers; ++i)
    layers_.push_back(make_focus_layer(config_, shape.hidden_size, rng));
  last_.resize(layers_.size());
  loss_.resize(layers_.size());
}

Routing TokenGrouping::routed(const MechanismInputs& in, Balance balance) {
  return focus::route(in.h, layer_of(in.layer), config_, balance, documents_of(in.options));
}

Routing TokenGrouping::route(const MechanismInputs& in, Balance balance) {
  const auto layer = static_cast<std::size_t>(in.layer);
  Routing routing = routed(in, balance);
  remember(layer, routing);
  return routing;
}

/// Keeps what follows the forward pass.
void TokenGrouping::remember(std::size_t layer, const Routing& routing) {
  last_[layer] = routing;
  last_[layer].assignments = Variable(routing.assignments.value());
  if (!keeps_vectors(config_)) last_[layer].vectors.reset();
  if (grad_enabled()) loss_[layer] = auxiliary_loss(routing, config_.ablations);
}

GroupIds TokenGrouping::group_ids(const MechanismInputs& in, Balance balance) {
  const Routing routing = route(in, balance);
  GroupIds group_ids{.groups = config_.num_groups, .heads = 1, .ids = best_groups(routing)};
  if (grad_enabled() && routing.assignments.requires_grad())
    group_ids.shares =
        reshape(routing.assignments, {in.h.dim(0), in.h.dim(1), 1, Index{config_.num_groups}});
  return group_ids;
}

Index TokenGrouping::assignment_cost(const MechanismInputs& in) const {
  return config_.tokens().routing_dim * (in.h.dim(2) + config_.num_groups);
}

GroupShares TokenGrouping::shares(const MechanismInputs& in, Balance balance) {
  const Routing routing = routed(in, balance);
  const Tensor& g = routing.assignments.value();
  return {.groups = g.cols(),
          .ids = best_groups(routing),
          .shares = {g.span().begin(), g.span().end()}};
}

void TokenGrouping::visit_tensors(Index layer,
                                  const std::function<void(std::string_view, Tensor&)>& f) {
  FocusLayer& of = layer_of(layer);
  f("projection", of.projection.mutable_value());
  f("centroids", of.centroids.mutable_value());
  f("potentials", of.potentials);
}

void TokenGrouping::visit_parameters(const std::function<void(const std::string&, Variable&)>& f) {
  for_each_parameter(*this, f);
}

void TokenGrouping::set_trainable(bool wanted) {
  const bool follow = config_.ablations.centroid_update == CentroidUpdate::average;
  for (FocusLayer& layer : layers_) {
    layer.projection.set_requires_grad(wanted);
    layer.centroids.set_requires_grad(wanted && !follow);
  }
}

Variable TokenGrouping::take_loss(Index layer) {
  return std::exchange(loss_[static_cast<std::size_t>(layer)], Variable());
}

void TokenGrouping::after_forward() {
  if (config_.ablations.centroid_update != CentroidUpdate::average) return;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (last_[i].logits) average_centroids(layers_[i], last_[i], config_.ablations.centroid_rate);
}

void TokenGrouping::add_statistics(Index layer, const GroupIds&, GroupStatistics& to) const {
  to.add(last_[static_cast<std::size_t>(layer)]);
}

std::pair<std::string, Tensor> TokenGrouping::last_groups(Index layer, const GroupIds&) const {
  const Tensor& g = last_[static_cast<std::size_t>(layer)].assignments.value();
  return {"assignments", g.reshape({g.rows(), g.cols()})};
}

std::vector<double> TokenGrouping::state_update(Index layer) const {
  const auto& logits = last_[static_cast<std::size_t>(layer)].logits;
  if (!logits) return {};
  return centred_potentials(*logits, config_.num_groups, config_.tokens().sinkhorn_iters);
}

void TokenGrouping::merge(Index layer, std::span<const double> state_update) {
  absorb_potentials(layer_of(layer), state_update, config_.tokens().carried_rate);
}

bool TokenGrouping::divides() const { return !keeps_vectors(config_); }

void TokenGrouping::end_step(std::int64_t steps_done) {
  const std::int64_t every = config_.ablations.recluster_every;
  if (every == 0 || steps_done % every != 0) return;
  const std::uint64_t count = layers_.size();
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (last_[i].logits)
      recluster(layers_[i], last_[i], config_.tokens(),
                static_cast<std::uint64_t>(steps_done) * count + i);
}

GroupingKind token_grouping() {
  return {.name = "tokens",
          .help = "groups of tokens (the paper's method): by a layer's input, balanced",
          .defaults = TokenSettings{},
          .is_routed = true,
          .tensors =
              [](const FocusConfig& config, const FocusShape& shape) {
                const Index groups = config.num_groups, dim = config.tokens().routing_dim;
                return std::vector<LayerTensor>{{"projection", {shape.hidden_size, dim}},
                                                {"centroids", {groups, dim}},
                                                {"potentials", {groups}, false}};
              },
          .make = [](const FocusConfig& config, const FocusShape& shape,
                     Rng& rng) -> std::unique_ptr<Grouping> {
            return std::make_unique<TokenGrouping>(config, shape, rng);
          },
          .needs_no_step = [](const FocusConfig&) { return false; },
          .attention_of = [](const FocusConfig& config) -> AttentionSpec {
            const TokenSettings& settings = config.tokens();
            return {.balance = settings.balance,
                    .gate = settings.hard_gate,
                    .summary = {.sinks = settings.sinks}};
          }};
}

}  // namespace focus
