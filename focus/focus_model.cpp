#include "focus/focus_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "autograd/check.h"
#include "focus/routing/balance_losses.h"
#include "focus/routing/centroids.h"
#include "focus/attention/gated_attention.h"
#include "focus/attention/sparse_attention.h"

namespace focus {

std::string AttentionMode::name() const {
  switch (kind) {
    case Kind::dense:
      return "dense";
    case Kind::soft:
      return "soft";
    case Kind::hard:
      break;
  }
  if (top_k == 0) return "local only";
  return fmt::format("hard k={}{}", top_k, hard_gate == HardGate::keep ? " keep" : "");
}

GateOptions hard_gate_options(const FocusConfig& config, const AttentionMode& mode,
                              const Routing& routing) {
  GateOptions options = GateOptions::from(config);
  options.gated = mode.hard_gate == HardGate::keep;
  options.membership = mode.top_k > 0
                           ? membership(routing, mode.top_k)
                           : std::vector<std::uint64_t>(
                                 static_cast<std::size_t>(routing.assignments.value().rows()), 0);
  return options;
}

void GroupStatistics::add_sizes(const Routing& routing) {
  sizes.resize(static_cast<std::size_t>(routing.assignments.value().cols()));
  for (const std::uint64_t set : membership(routing, 1))
    ++sizes[static_cast<std::size_t>(std::countr_zero(set))];
  tokens += routing.assignments.value().rows();
}

double GroupStatistics::dominance() const {
  if (tokens == 0) return 0;
  return static_cast<double>(*std::ranges::max_element(sizes)) / static_cast<double>(tokens);
}

namespace {

bool keeps_vectors(const FocusConfig& config) {
  return config.centroid_update == CentroidUpdate::average || config.recluster_every > 0;
}

}  // namespace

FocusModel::FocusModel(FocusConfig config, Index hidden_size, Index num_layers, Rng& rng)
    : config_(std::move(config)) {
  config_.validate();
  mode.balance = config_.balance;
  mode.hard_gate = config_.hard_gate;
  for (Index i = 0; i < num_layers; ++i)
    layers_.push_back(make_focus_layer(config_, hidden_size, rng));
  last_.resize(layers_.size());
  auxiliary_.resize(layers_.size());
  reset_statistics();
}

void FocusModel::compose(Decoder& decoder) {
  check(decoder.layers().size() == layers_.size(), "focus: {} layers for a decoder of {}",
        layers_.size(), decoder.layers().size());
  for (Block& block : decoder.layers())
    block.self_attn.mechanism = [this](const MechanismInputs& in) { return attend(in); };
}

Variable FocusModel::attend(const MechanismInputs& in) {
  check(in.first_position == 0, "focus: layer {} has no cache of the {} tokens before", in.layer,
        in.first_position);
  if (mode.kind == AttentionMode::Kind::dense) return attention(in.q, in.k, in.v, in.options);
  const auto layer = static_cast<std::size_t>(in.layer);
  const Routing routing = route(in.h, layers_[layer], config_, mode.balance);
  GateOptions options = mode.kind == AttentionMode::Kind::hard
                            ? hard_gate_options(config_, mode, routing)
                            : GateOptions::from(config_);
  last_[layer] = routing;
  last_[layer].assignments = Variable(routing.assignments.value());
  if (!keeps_vectors(config_)) last_[layer].vectors.reset();
  if (grad_enabled()) auxiliary_[layer] = auxiliary_loss(routing, config_);
  if (gather_statistics) gather(in, routing, options);
  if (mode.kind == AttentionMode::Kind::hard)
    return sparse_attention(in.q, in.k, in.v, routing.assignments, in.options, std::move(options));
  return gated_attention(in.q, in.k, in.v, routing.assignments, in.options, std::move(options));
}

void FocusModel::gather(const MechanismInputs& in, const Routing& routing,
                        const GateOptions& options) {
  GroupStatistics& stats = statistics[static_cast<std::size_t>(in.layer)];
  const Tensor& g = routing.assignments.value();
  const Index groups = g.cols(), batch = in.h.dim(0), seq_len = in.h.dim(1);
  stats.add_sizes(routing);
  for (Index i = 0; i < g.rows(); ++i) {
    const Real* row = g.data() + i * groups;
    stats.confidence += static_cast<double>(*std::max_element(row, row + groups));
    for (Index k = 0; k < groups; ++k)
      if (row[k] > 0)
        stats.entropy -= static_cast<double>(row[k]) * std::log(static_cast<double>(row[k]));
  }
  for (Index s = 0; s < batch; ++s) {
    std::span<const std::uint64_t> sets(options.membership);
    if (!sets.empty())
      sets = sets.subspan(static_cast<std::size_t>(s * seq_len), static_cast<std::size_t>(seq_len));
    stats.pairs += count_pairs(sets, seq_len, config_.local_window, in.options.sliding_window);
  }
}

void FocusModel::update_potentials() {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (last_[i].logits) focus::update_potentials(layers_[i], last_[i], config_);
}

void FocusModel::update_centroids() {
  if (config_.centroid_update != CentroidUpdate::average) return;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (last_[i].logits) average_centroids(layers_[i], last_[i], config_.centroid_rate);
}

void FocusModel::recluster(std::int64_t steps) {
  if (config_.recluster_every == 0 || steps % config_.recluster_every != 0) return;
  const std::uint64_t count = layers_.size();
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (last_[i].logits)
      focus::recluster(layers_[i], last_[i], config_,
                       static_cast<std::uint64_t>(steps) * count + i);
}

Variable FocusModel::take_auxiliary_loss() {
  Variable sum;
  for (Variable& term : auxiliary_) {
    const Variable taken = std::exchange(term, Variable());
    if (taken.defined()) sum = sum.defined() ? add(sum, taken) : taken;
  }
  return sum;
}

void set_requires_grad(FocusModel& focus, bool wanted) {
  const bool follow = focus.config().centroid_update == CentroidUpdate::average;
  for (FocusLayer& layer : focus.layers()) {
    layer.projection.set_requires_grad(wanted);
    layer.centroids.set_requires_grad(wanted && !follow);
  }
}

void FocusModel::reset_statistics() {
  statistics.assign(layers_.size(), GroupStatistics{});
  for (GroupStatistics& stats : statistics)
    stats.sizes.assign(static_cast<std::size_t>(config_.num_groups), 0);
}

}  // namespace focus
