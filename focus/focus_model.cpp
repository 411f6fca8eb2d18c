#include "focus/focus_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/profile.h"
#include "focus/attention/gated_attention.h"
#include "focus/attention/sparse_attention.h"
#include "focus/focus_files.h"
#include "focus/routing/balance_losses.h"
#include "focus/routing/centroids.h"

namespace focus {

namespace {

/// "summary m=2 w=32", with what is not as usual behind it.
std::string summary_name(const AttentionMode& mode) {
  const SummaryOptions& options = mode.summary;
  const SummaryZones usual, &zones = options.zones;
  std::string name = options.rest == Rest::summary ? "summary" : "selection";
  if (!mode.top_groups_of_layer.empty())
    name += fmt::format(" m={} by layer", fmt::join(mode.top_groups_of_layer, "+"));
  else
    name += options.own_group ? " own" : fmt::format(" m={}", options.top_groups);
  if (!mode.window_of_layer.empty())
    name += fmt::format(" w={} by layer", fmt::join(mode.window_of_layer, "+"));
  else
    name += fmt::format(" w={}", zones.window);
  if (zones.block != usual.block) name += fmt::format(" block={}", zones.block);
  if (zones.sinks != usual.sinks) name += fmt::format(" sinks={}", zones.sinks);
  return name;
}

}  // namespace

std::string AttentionMode::name() const {
  switch (kind) {
    case Kind::dense:
      return "dense";
    case Kind::soft:
      return "soft";
    case Kind::summary:
      return summary_name(*this);
    case Kind::hard:
      break;
  }
  if (top_k == 0) return "local only";
  return fmt::format("hard k={}{}", top_k, hard_gate == HardGate::keep ? " keep" : "");
}

SummaryOptions AttentionMode::summary_of(Index layer) const {
  SummaryOptions options = summary;
  if (!top_groups_of_layer.empty())
    options.top_groups = top_groups_of_layer[static_cast<std::size_t>(layer)];
  if (!window_of_layer.empty())
    options.zones.window = window_of_layer[static_cast<std::size_t>(layer)];
  return options;
}

AttentionMode summary_mode(const FocusConfig& config) {
  const bool own = config.choice == GroupChoice::own;
  return {
      .kind = AttentionMode::Kind::summary,
      .balance = config.balance,
      .summary = {
          .zones = {.window = config.local_window, .block = config.block, .sinks = config.sinks},
          .top_groups = own ? 1 : std::min(config.read_groups, config.num_groups),
          .rest = config.rest,
          .own_group = own}};
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

FocusModel::FocusModel(const FocusConfig& config, const FocusShape& shape, Rng& rng)
    : config_(config), shape_(shape) {
  config_.validate();
  mode.balance = config_.balance;
  mode.hard_gate = config_.hard_gate;
  if (groups_keys()) mode = summary_mode(config_);
  for (Index i = 0; i < shape.num_layers; ++i)
    if (groups_keys())
      key_groups_.push_back(
          make_key_groups(config_.num_groups, shape.kv_heads, shape.head_dim, rng));
    else
      layers_.push_back(make_focus_layer(config_, shape.hidden_size, rng));
  const auto layers = static_cast<std::size_t>(shape.num_layers);
  last_.resize(layers);
  last_classes_.resize(layers);
  auxiliary_.resize(layers);
  reset_statistics();
}

AttentionMode FocusModel::training_mode(const StepPlace& place) const {
  AttentionMode training{.kind = AttentionMode::Kind::soft, .balance = config_.balance};
  if (config_.training == Training::summary) {
    // Groups of keys that are still to be placed attend as the model does by itself.
    if (groups_keys() && place.step < config_.fit_step.value_or(0))
      return {.kind = AttentionMode::Kind::dense};
    training = summary_mode(config_);
    if (config_.train_read_groups) training.summary.top_groups = *config_.train_read_groups;
  }
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
  check(decoder.layers().size() == last_.size(), "focus: {} layers for a decoder of {}",
        last_.size(), decoder.layers().size());
  composed_.reset();  // or it would be put back when the new one goes
  decoder_ = &decoder;
  composed_.emplace(decoder, [this](const MechanismInputs& in) { return attend(in); });
}

void FocusModel::for_each_own(const std::function<void(const std::string&, Variable&)>& f) {
  for_each_parameter(*this, f, "focus");
}

double FocusModel::lr_factor(const std::string& name) const {
  // "focus.layers.3.centroids"
  constexpr std::string_view kLayers = "focus.layers.";
  if (!groups_keys() || !name.starts_with(kLayers)) return 1;
  if (name.ends_with(".beta")) return 0.5;
  if (!name.ends_with(".centroids")) return 1;
  const auto layer = static_cast<std::size_t>(std::stol(name.substr(kLayers.size())));
  return 2 * static_cast<double>(key_groups_.at(layer).spread[0]);
}

void FocusModel::begin_step(const StepPlace& place) {
  mode = training_mode(place);
  step_groups_.assign(last_.size(), {});
}

Variable FocusModel::after_forward() {
  update_centroids();
  return take_auxiliary_loss();
}

bool FocusModel::divides() const { return !keeps_vectors(config_); }

// Layer after layer: its groups, then its potentials behind their number.
std::vector<double> FocusModel::part_record() const {
  std::vector<double> record;
  for (std::size_t i = 0; i < step_groups_.size(); ++i) {
    GroupStatistics groups;
    if (groups_keys())
      groups.add_sizes(last_classes_[i].classes, last_classes_[i].heads, config_.num_groups);
    else
      groups.add(last_[i]);
    groups.append_to(record);
    std::vector<double> potentials;
    if (!groups_keys() && last_[i].logits)
      potentials = centred_potentials(*last_[i].logits, config_.num_groups, config_.sinkhorn_iters);
    record.push_back(static_cast<double>(potentials.size()));
    record.insert(record.end(), potentials.begin(), potentials.end());
  }
  profile_mark("potentials");
  return record;
}

void FocusModel::absorb(std::span<const double> record) {
  for (std::size_t i = 0; i < step_groups_.size(); ++i) {
    record = record.subspan(step_groups_[i].add(record));
    const auto count = static_cast<std::size_t>(record[0]);
    if (count > 0) absorb_potentials(layers_[i], record.subspan(1, count), config_);
    record = record.subspan(1 + count);
  }
}

void FocusModel::begin_validation() {
  if (config_.training == Training::summary)
    mode = summary_mode(config_);
  else
    mode = {.kind = AttentionMode::Kind::soft, .balance = config_.balance};
}

Variable FocusModel::attend(const MechanismInputs& in) {
  check(in.first_position == 0, "focus: layer {} has no cache of the {} tokens before", in.layer,
        in.first_position);
  if (mode.kind == AttentionMode::Kind::dense) return attention(in.q, in.k, in.v, in.options);
  if (mode.kind == AttentionMode::Kind::summary)
    return attend_summary(in, mode.summary_of(in.layer));
  if (groups_keys() && mode.kind == AttentionMode::Kind::hard && mode.top_k == 0)  // local
    return attend_summary(
        in, {.zones = {config_.local_window, 1, 0}, .top_groups = 0, .rest = Rest::drop});
  check(!groups_keys(), "focus: groups of keys have summary attention alone, not {}", mode.name());
  const auto layer = static_cast<std::size_t>(in.layer);
  const Routing routing = route(in.h, layers_[layer], config_, mode.balance);
  GateOptions options = mode.kind == AttentionMode::Kind::hard
                            ? hard_gate_options(config_, mode, routing)
                            : GateOptions::from(config_);
  remember(layer, routing);
  if (gather_statistics) gather(in, routing, options);
  if (mode.kind == AttentionMode::Kind::hard)
    return sparse_attention(in.q, in.k, in.v, routing.assignments, in.options, options);
  return gated_attention(in.q, in.k, in.v, routing.assignments, in.options, options);
}

/// Keeps what follows the forward pass.
void FocusModel::remember(std::size_t layer, const Routing& routing) {
  last_[layer] = routing;
  last_[layer].assignments = Variable(routing.assignments.value());
  if (!keeps_vectors(config_)) last_[layer].vectors.reset();
  if (grad_enabled()) auxiliary_[layer] = auxiliary_loss(routing, config_);
}

Variable FocusModel::beta_of_layer(Index layer, Index kv_heads) const {
  if (groups_keys()) return key_groups_[static_cast<std::size_t>(layer)].beta;
  return Variable(Tensor::zeros({kv_heads, Index{config_.num_groups}}));
}

KeyClasses FocusModel::classes_of_layer(const MechanismInputs& in, Balance balance) {
  const auto layer = static_cast<std::size_t>(in.layer);
  if (groups_keys()) {
    const KeyGroups& groups = key_groups_[layer];
    // The keys are a constant of their classes: what they change in them is not what they are for.
    const Variable keys(in.k.value());
    if (grad_enabled() && groups.centroids.requires_grad())
      return classes_of(class_scores(keys, groups.centroids, groups.bias),
                        static_cast<double>(groups.temperature[0]));
    return nearest_classes(keys.value(), groups.centroids.value(), groups.bias.value());
  }
  const Routing routing = route(in.h, layers_[layer], config_, balance);
  remember(layer, routing);
  KeyClasses classes{.groups = config_.num_groups, .heads = 1, .classes = {}};
  for (const std::uint64_t set : membership(routing, 1))
    classes.classes.push_back(static_cast<std::uint8_t>(std::countr_zero(set)));
  if (grad_enabled() && routing.assignments.requires_grad())
    classes.shares =
        reshape(routing.assignments, {in.h.dim(0), in.h.dim(1), 1, Index{config_.num_groups}});
  return classes;
}

Variable FocusModel::layer_error(const MechanismInputs& in, const Variable& out,
                                 const Variable& dense) const {
  const Weight& projection =
      decoder_->layers()[static_cast<std::size_t>(in.layer)].self_attn.o_proj.weight;
  const Shape rows = {in.q.dim(0), in.q.dim(1), in.q.dim(2) * in.q.dim(3)};
  return relative_squared_error(linear(reshape(out, rows), projection, {}),
                                linear(reshape(dense, rows), projection, {}).value());
}

Variable FocusModel::attend_summary(const MechanismInputs& in, const SummaryOptions& options) {
  const auto layer = static_cast<std::size_t>(in.layer);
  const KeyClasses classes = classes_of_layer(in, mode.balance);
  const Variable beta = beta_of_layer(in.layer, in.k.dim(2));
  SummaryReport report;
  Variable out = summary_attention(in.q, in.k, in.v, classes, beta, in.options, options,
                                   gather_statistics ? &report : nullptr);
  if (gather_statistics) gather_summary(in, classes, report, options);
  last_classes_[layer] = {classes.groups, classes.heads, classes.classes, {}};
  if (config_.objective != Objective::layers || !grad_enabled()) return out;
  // The next layer goes on from the dense output: no layer's error reaches another's parameters.
  Variable dense = attention(in.q, in.k, in.v, in.options);
  auxiliary_[layer] = layer_error(in, out, dense);
  return dense;
}

void FocusModel::gather_summary(const MechanismInputs& in, const KeyClasses& classes,
                                const SummaryReport& report, const SummaryOptions& options) {
  GroupStatistics& stats = statistics[static_cast<std::size_t>(in.layer)];
  stats.add_sizes(classes.classes, classes.heads, config_.num_groups);
  const Index heads = in.q.dim(2), dim = in.q.dim(3);
  std::int64_t scored = 0;
  for (std::size_t s = 0; s < report.pairs.size(); ++s) {
    PairCounts counts =
        count_pairs({}, in.q.dim(1), options.zones.window, in.options.sliding_window);
    counts.attended = (report.pairs[s] + heads / 2) / heads;
    stats.pairs += counts;
    scored += report.scored[s];
  }
  if (options.top_groups == 0 && options.rest == Rest::drop) return;  // nobody asks for the groups
  const Index to_assign = groups_keys() ? in.k.dim(2) * config_.num_groups * dim : to_route();
  const Index tokens = in.q.dim(0) * in.q.dim(1);
  stats.pairs.choosing += pairs_worth(static_cast<double>(tokens * to_assign + scored * dim), in);
}

/// Multiply-adds that put a token of the hidden states into its groups.
Index FocusModel::to_route() const {
  return config_.routing_dim * (shape_.hidden_size + config_.num_groups);
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
  if (mode.kind != AttentionMode::Kind::hard || mode.top_k > 0)
    stats.pairs.choosing += pairs_worth(static_cast<double>(batch * seq_len * to_route()), in);
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
  for (KeyGroups& groups : key_groups_)
    groups.visit([wanted](const char*, Variable& p) { p.set_requires_grad(wanted); });
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
  statistics.assign(last_.size(), GroupStatistics{});
  for (GroupStatistics& stats : statistics)
    stats.sizes.assign(static_cast<std::size_t>(config_.num_groups), 0);
}

}  // namespace focus
