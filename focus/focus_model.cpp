#include "focus/focus_model.h"

#include <utility>

#include "autograd/check.h"
#include "focus/attention/gated_attention.h"
#include "focus/attention/sparse_attention.h"
#include "focus/focus_files.h"
#include "focus/routing/balance_losses.h"
#include "focus/routing/centroids.h"

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

AttentionMode FocusModel::training_mode(const StepPlace& place) const {
  AttentionMode training{.kind = AttentionMode::Kind::soft, .balance = config_.balance};
  if (training.balance == Balance::carried && place.first_phase &&
      place.step < config_.sequence_steps)
    training.balance = Balance::sequence;
  if (config_.training == Training::hard) {
    training.kind = AttentionMode::Kind::hard;
    training.top_k = config_.train_top_k;
    training.hard_gate = HardGate::keep;
  }
  return training;
}

void FocusModel::compose(Decoder& decoder) {
  check(decoder.layers().size() == layers_.size(), "focus: {} layers for a decoder of {}",
        layers_.size(), decoder.layers().size());
  composed_.reset();  // or it would be put back when the new one goes
  composed_.emplace(decoder, [this](const MechanismInputs& in) { return attend(in); });
}

void FocusModel::for_each_own(const std::function<void(const std::string&, Variable&)>& f) {
  for_each_parameter(*this, f, "focus");
}

void FocusModel::begin_step(const StepPlace& place) {
  mode = training_mode(place);
  step_groups_.assign(layers_.size(), {});
}

Variable FocusModel::after_forward() {
  for (std::size_t i = 0; i < step_groups_.size(); ++i) step_groups_[i].add_sizes(last_[i]);
  const Variable terms = take_auxiliary_loss();
  update_potentials();
  update_centroids();
  return terms;
}

void FocusModel::begin_validation() {
  mode = {.kind = AttentionMode::Kind::soft, .balance = config_.balance};
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
    return sparse_attention(in.q, in.k, in.v, routing.assignments, in.options, options);
  return gated_attention(in.q, in.k, in.v, routing.assignments, in.options, options);
}

void FocusModel::gather(const MechanismInputs& in, const Routing& routing,
                        const GateOptions& options) {
  GroupStatistics& stats = statistics[static_cast<std::size_t>(in.layer)];
  stats.add(routing);
  const Index batch = in.h.dim(0), seq_len = in.h.dim(1);
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

void FocusModel::set_trainable(bool wanted) {
  const bool follow = config_.centroid_update == CentroidUpdate::average;
  for (FocusLayer& layer : layers_) {
    layer.projection.set_requires_grad(wanted);
    layer.centroids.set_requires_grad(wanted && !follow);
  }
}

void FocusModel::start_counting() {
  reset_statistics();
  gather_statistics = true;
}

AttentionCounts FocusModel::counts() const {
  AttentionCounts counts{.pairs = {}, .layers = statistics};
  for (const GroupStatistics& layer : statistics) counts.pairs += layer.pairs;
  return counts;
}

void FocusModel::write(StoreWriter& store, const std::string& base_fingerprint) {
  write_focus(store, *this, base_fingerprint);
}

void FocusModel::restore(const StoreReader& store) { restore_focus(open_focus(store), *this); }

void FocusModel::reset_statistics() {
  statistics.assign(layers_.size(), GroupStatistics{});
  for (GroupStatistics& stats : statistics)
    stats.sizes.assign(static_cast<std::size_t>(config_.num_groups), 0);
}

}  // namespace focus
