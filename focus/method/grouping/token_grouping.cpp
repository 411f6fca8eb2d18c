#include "focus/method/grouping/token_grouping.h"

#include "focus/method/documents.h"

namespace focus {
TokenGrouping::TokenGrouping(const FocusConfig& config, const FocusShape& shape, Rng& rng)
    : GroupingWith(config.num_groups), config_(config) {
  for (Index i = 0; i < shape.num_layers; ++i)
    layers_.push_back(make_focus_layer(config_, shape.hidden_size, rng));
  last_.resize(layers_.size());
  loss_.resize(layers_.size());
}

Routing TokenGrouping::routed(const MechanismInputs& in, Balance balance) {
  return focus::route(in.h, layers_[in.layer], config_, balance, documents_of(in.options));
}

Routing TokenGrouping::route(const MechanismInputs& in, Balance balance) {
  Routing routing = routed(in, balance);
  Routing& kept = last_[in.layer] = routing;
  kept.assignments = Variable(routing.assignments.value());
  if (divides()) kept.vectors.reset();  // no centroid follows them
  if (grad_enabled()) loss_[in.layer] = auxiliary_loss(routing, config_.ablations);
  return routing;
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

void TokenGrouping::set_trainable(bool wanted) {
  GroupingWith::set_trainable(wanted);
  for (FocusLayer& layer : layers_)
    if (config_.ablations.centroid_update == CentroidUpdate::average)
      layer.centroids.set_requires_grad(false);
}

void TokenGrouping::after_forward() {
  if (config_.ablations.centroid_update != CentroidUpdate::average) return;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (last_[i].logits) average_centroids(layers_[i], last_[i], config_.ablations.centroid_rate);
}

std::pair<std::string, Tensor> TokenGrouping::last_groups(Index layer, const GroupIds&) const {
  const Tensor& g = last_[layer].assignments.value();
  return {"assignments", g.reshape({g.rows(), g.cols()})};
}

std::vector<double> TokenGrouping::state_update(Index layer) const {
  const auto& logits = last_[layer].logits;
  if (!logits) return {};
  return centred_potentials(*logits, config_.num_groups, config_.tokens().sinkhorn_iters);
}

bool TokenGrouping::divides() const {
  return config_.ablations.centroid_update != CentroidUpdate::average &&
         config_.ablations.recluster_every <= 0;
}

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
          .make = make_grouping<TokenGrouping>,
          .needs_no_step = [](const FocusConfig&) { return false; },
          .attention_of = [](const FocusConfig& config) -> AttentionSpec {
            const TokenSettings& settings = config.tokens();
            return {.balance = settings.balance,
                    .gate = settings.hard_gate,
                    .summary = {.sinks = settings.sinks}};
          }};
}

}  // namespace focus
