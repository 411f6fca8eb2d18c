#include "focus/method/focus_model.h"

#include <map>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/profile.h"
#include "focus/method/attention/focus_attention.h"
#include "focus/method/documents.h"
#include "focus/method/focus_files.h"
#include "focus/method/summary/head_budgets.h"

namespace focus {
namespace {

constexpr std::string_view kParameters = "focus.";

/// What tokens [begin, end) have of a list that has as much of every token.
template <class T>
std::vector<T> part_of(const std::vector<T>& list, Index begin, Index end, Index each = 1) {
  if (list.empty()) return {};
  return {list.begin() + begin * each, list.begin() + end * each};
}

/// The group_ids of one document of a row.
GroupIds part_of(const GroupIds& group_ids, Index begin, Index end) {
  GroupIds part{.groups = group_ids.groups,
                .heads = group_ids.heads,
                .ids = part_of(group_ids.ids, begin, end, group_ids.heads)};
  if (group_ids.shares.defined()) part.shares = slice(group_ids.shares, begin, end);
  return part;
}

}  // namespace

GateOptions gate_options(const FocusConfig& config, const AttentionSpec& attention,
                         const Routing& routing) {
  GateOptions options = GateOptions::from(config);
  options.sinks = attention.summary.sinks.value_or(options.sinks);
  if (attention.kind == AttentionKind::soft) return options;
  options.gated = attention.gate == HardGate::keep;
  if (attention.kind == AttentionKind::hard) {
    options.membership = membership(routing, attention.top_k);
  } else {
    options.sinks = 0;
    options.membership.assign(routing.assignments.value().rows(), 0);
  }
  return options;
}

FocusModel::FocusModel(const FocusConfig& config, const FocusShape& shape, Rng& rng)
    : config_(config), shape_(shape) {
  config_.validate();
  const bool soft = grouping_kind().groups_tokens;
  mode =
      AttentionSpec{.kind = soft ? AttentionKind::soft : AttentionKind::summary}.or_from(config_);
  grouping_ = grouping_kind().make(config_, shape_, rng);
  last_group_ids_.resize(shape.num_layers);
  layer_errors_.resize(shape.num_layers);
}

AttentionSpec FocusModel::training_mode(const StepInfo& place) const {
  if (!grouping_->is_placed_at(place.step)) return {.kind = AttentionKind::dense};
  const TokenSettings& tokens = config_.tokens();
  AttentionSpec training{.kind = AttentionKind::soft};
  if (config_.training == Training::hard)
    training = {.kind = AttentionKind::hard, .top_k = tokens.train_top_k, .gate = HardGate::keep};
  if (config_.training == Training::summary) {
    training.kind = AttentionKind::summary;
    training.summary.selection = config_.summary.selection;
    const std::vector<int>& in_turn = config_.summary.train_num_selected_groups;
    if (!in_turn.empty())
      training.summary.num_selected_groups = std::min(
          config_.num_groups, in_turn[static_cast<std::size_t>(place.step) % in_turn.size()]);
  }
  training = training.or_from(config_);
  if (training.balance == Balance::carried && place.first_phase &&
      place.step < tokens.sequence_steps.value_or(place.steps * 4 / 5))
    training.balance = Balance::sequence;
  return training;
}

void FocusModel::attach(Decoder& decoder) {
  check(decoder.layers().size() == last_group_ids_.size(), "focus: {} layers for a decoder of {}",
        last_group_ids_.size(), decoder.layers().size());
  attached_.reset();  // or it would be put back when the new one goes
  decoder_ = &decoder;
  attached_.emplace(decoder, [this](const MechanismInputs& in) { return attend(in); });
}

void FocusModel::visit_parameters(const std::function<void(const std::string&, Variable&)>& f) {
  grouping_->visit_parameters(
      [&](const std::string& name, Variable& p) { f(std::string(kParameters) + name, p); });
}

double FocusModel::lr_factor(const std::string& name) const {
  return name.starts_with(kParameters) ? grouping_->lr_factor(name.substr(kParameters.size())) : 1;
}

void FocusModel::begin_step(const StepInfo& place) {
  mode = training_mode(place);
  step_groups_.assign(last_group_ids_.size(), {});
}

Variable FocusModel::after_forward() {
  grouping_->after_forward();
  return take_auxiliary_loss();
}

// Layer after layer: its groups, then its state's update behind the update's length.
std::vector<double> FocusModel::step_statistics() const {
  std::vector<double> record;
  for (std::size_t i = 0; i < step_groups_.size(); ++i) {
    const auto layer = static_cast<Index>(i);
    GroupStatistics groups;
    grouping_->add_statistics(layer, last_group_ids_[i], groups);
    append_numbers(groups, record);
    const std::vector<double> update = grouping_->state_update(layer);
    record.push_back(static_cast<double>(update.size()));
    record.insert(record.end(), update.begin(), update.end());
  }
  profile_mark("potentials");
  return record;
}

void FocusModel::merge_statistics(std::span<const double> record) {
  for (std::size_t i = 0; i < step_groups_.size(); ++i) {
    record = record.subspan(add_numbers(record, step_groups_[i]));
    const auto count = static_cast<std::size_t>(record[0]);
    if (count > 0) grouping_->merge(static_cast<Index>(i), record.subspan(1, count));
    record = record.subspan(1 + count);
  }
}

void FocusModel::begin_validation() {
  const bool summary = config_.training == Training::summary;
  mode = {.kind = summary ? AttentionKind::summary : AttentionKind::soft};
}

Variable FocusModel::attend(const MechanismInputs& in) {
  check(in.first_position == 0, "focus: layer {} has no cache of the {} tokens before", in.layer,
        in.first_position);
  if (mode.kind == AttentionKind::dense) return attention(in.q, in.k, in.v, in.options);
  const AttentionSpec runs = runnable_mode(mode);
  const Variable out =
      runs.kind == AttentionKind::summary ? attend_summary(in, runs) : attend_tokens(in, runs);
  return config_.objective == Objective::layer_distillation && grad_enabled() ? distilled(in, out)
                                                                              : out;
}

Variable FocusModel::attend_tokens(const MechanismInputs& in, const AttentionSpec& runs) {
  check(grouping_kind().groups_tokens, "focus: groups of {} have summary attention only, not {}",
        grouping_->kind(), mode.name());
  const Routing routing = grouping_->route(in, *runs.balance);
  const GateOptions options = gate_options(config_, runs, routing);
  if (counting_) gather(in, routing, options, runs.kind != AttentionKind::local);
  if (runs.kind != AttentionKind::soft)
    return by_document(in, [&](const MechanismInputs& part, Index begin, Index end) {
      GateOptions of_part = options;
      of_part.membership = part_of(options.membership, begin, end);
      return sparse_attention(
          part.q, part.k, part.v,
          in.options.documents ? slice(routing.assignments, begin, end) : routing.assignments,
          part.options, of_part);
    });
  return gated_attention(in.q, in.k, in.v, routing.assignments, in.options, options);
}

AttentionSpec FocusModel::runnable_mode(const AttentionSpec& wanted) const {
  AttentionSpec runs = wanted;
  if (wanted.kind == AttentionKind::local && !grouping_kind().groups_tokens)
    runs = {.kind = AttentionKind::summary,
            .summary = {.block = 1,
                        .sinks = 0,
                        .num_selected_groups = 0,
                        .unselected_groups = UnselectedGroups::drop}};
  return runs.or_from(config_);
}

std::vector<Tensor> FocusModel::head_needs() {
  std::vector<Tensor> needs;
  for (Index i = 0; i < shape_.num_layers; ++i)
    if (const Tensor* of_layer = grouping_->head_needs(i)) needs.push_back(*of_layer);
  return needs;
}

SummarySettings FocusModel::summary_of(const AttentionSpec& attention, Index layer) {
  SummarySettings settings = attention.summary_of(layer);
  if (const Tensor* widths = grouping_->summary_width(layer);
      widths != nullptr && std::ranges::any_of(widths->span(), [](Real x) { return x > 0; }))
    settings.summary_width.assign(widths->span().begin(), widths->span().end());
  if (settings.head_budgets == HeadBudgets::equal || !attention.m_by_layer.empty() ||
      !settings.query_heads_select())
    return settings;
  if (const std::vector<Tensor> needs = head_needs(); !needs.empty())
    settings.selected_by_head =
        head_budgets(needs, settings.num_selected_groups, config_.num_groups)[layer];
  return settings;
}

Variable attention_output(Decoder& decoder, const MechanismInputs& in, const Variable& attended) {
  const Linear& o_proj = decoder.layers()[in.layer].self_attn.o_proj;
  const Shape rows = {in.q.dim(0), in.q.dim(1), in.q.dim(2) * in.q.dim(3)};
  return Linear{o_proj.weight, {}, o_proj.addition}(reshape(attended, rows));
}

Variable FocusModel::distilled(const MechanismInputs& in, const Variable& out) {
  const auto projected = [&](const Variable& attended) {
    return attention_output(*decoder_, in, attended);
  };
  if (!expected_.empty()) {
    layer_errors_[in.layer] = relative_squared_error(projected(out), expected_[in.layer]);
    return out;
  }
  // The next layer continues from the dense output: no layer's error reaches another's parameters.
  Variable dense = attention(in.q, in.k, in.v, in.options);
  layer_errors_[in.layer] = relative_squared_error(projected(out), projected(dense).value());
  return dense;
}

Variable FocusModel::attend_summary(const MechanismInputs& in, const AttentionSpec& attends) {
  const SummarySettings settings = summary_of(attends, in.layer);
  const GroupIds group_ids = grouping_->group_ids(in, *attends.balance);
  const Variable summary_bias = grouping_->summary_bias(in.layer, in.k.dim(2));
  SummaryReport report;  // of all sequences
  Variable out = by_document(in, [&](const MechanismInputs& part, Index begin, Index end) {
    SummaryReport of_part;
    Variable of_document = summary_attention(
        part.q, part.k, part.v, in.options.documents ? part_of(group_ids, begin, end) : group_ids,
        summary_bias, part.options, settings, counting_ ? &of_part : nullptr);
    report.pairs.insert(report.pairs.end(), of_part.pairs.begin(), of_part.pairs.end());
    report.scored.insert(report.scored.end(), of_part.scored.begin(), of_part.scored.end());
    return of_document;
  });
  if (counting_) gather_summary(in, group_ids, report, settings);
  last_group_ids_[in.layer] = {group_ids.groups, group_ids.heads, group_ids.ids, {}};
  return out;
}

void FocusModel::gather_summary(const MechanismInputs& in, const GroupIds& group_ids,
                                const SummaryReport& report, const SummarySettings& settings) {
  GroupStatistics& stats = statistics_[in.layer];
  stats.add_sizes(group_ids.ids, group_ids.heads, config_.num_groups);
  const Index heads = in.q.dim(2), dim = in.q.dim(3);
  const std::vector<Index> starts = sequence_starts(in);
  std::int64_t scored = 0;
  for (std::size_t s = 0; s < report.pairs.size(); ++s) {
    PairCounts counts = count_pairs({}, starts[s + 1] - starts[s], settings.local_window,
                                    in.options.sliding_window);
    counts.attended = (report.pairs[s] + heads / 2) / heads;
    stats.pairs += counts;
    scored += report.scored[s];
  }
  if (settings.most_selected() == 0 && settings.unselected_groups == UnselectedGroups::drop)
    return;  // nobody asks for the groups
  const Index tokens = in.q.dim(0) * in.q.dim(1);
  // A summary token whose width counts is scored twice.
  const Index scores = settings.uses_width() ? 2 * scored : scored;
  const Index work = tokens * grouping_->assignment_cost(in) + scores * dim;
  stats.pairs.selection_cost += pairs_worth(static_cast<double>(work), in);
}

void FocusModel::gather(const MechanismInputs& in, const Routing& routing,
                        const GateOptions& options, bool by_groups) {
  GroupStatistics& stats = statistics_[in.layer];
  stats.add(routing);
  const std::vector<Index> starts = sequence_starts(in);
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    const Index first = starts[s], seq_len = starts[s + 1] - first;
    std::span<const std::uint64_t> masks(options.membership);
    if (!masks.empty()) masks = masks.subspan(first, seq_len);
    stats.pairs +=
        count_pairs(masks, seq_len, config_.local_window, in.options.sliding_window, options.sinks);
  }
  if (by_groups)
    stats.pairs.selection_cost +=
        pairs_worth(static_cast<double>(starts.back() * grouping_->assignment_cost(in)), in);
}

Variable FocusModel::take_auxiliary_loss() {
  Variable sum;
  expected_.clear();
  for (std::size_t i = 0; i < layer_errors_.size(); ++i) {
    const Variable of_grouping = grouping_->take_loss(static_cast<Index>(i));
    Variable term = std::exchange(layer_errors_[i], Variable());
    if (!term.defined()) term = of_grouping;
    if (term.defined()) sum = sum.defined() ? add(sum, term) : term;
  }
  return sum;
}

void FocusModel::start_counting() {
  counting_ = true;
  statistics_.assign(last_group_ids_.size(), {});
  for (GroupStatistics& stats : statistics_) stats.sizes.assign(config_.num_groups, 0);
}

AttentionCounts FocusModel::counts() const {
  AttentionCounts counts{.pairs = {}, .layers = statistics_};
  for (const GroupStatistics& layer : statistics_) counts.pairs += layer.pairs;
  return counts;
}

void FocusModel::write(StoreWriter& store, const std::string& base_fingerprint) {
  write_focus(store, *this, base_fingerprint);
}

void FocusModel::restore(const StoreReader& store) { restore_focus(open_focus(store), *this); }

void FocusModel::start_from(Adapter& other, const std::string& where) {
  auto& from = dynamic_cast<FocusModel&>(other);
  const auto agree = [&](std::string_view key, const auto& own, const auto& theirs) {
    if (own != theirs)
      fail("{}: has focus.{} {}, but this run {}; set focus.{}={}", where, key, theirs, own, key,
           theirs);
  };
  agree("grouping", config_.grouping.name, from.config_.grouping.name);
  agree("num_groups", config_.num_groups, from.config_.num_groups);
  if (grouping_kind().is_routed)
    agree("tokens.routing_dim", config_.tokens().routing_dim, from.config_.tokens().routing_dim);
  for (Index i = 0; i < shape_.num_layers; ++i) {
    std::map<std::string, Tensor, std::less<>> values;
    from.grouping().visit_tensors(
        i, [&](std::string_view name, Tensor& value) { values.emplace(name, value); });
    grouping_->visit_tensors(i, [&](std::string_view name, Tensor& value) {
      const auto found = values.find(name);
      if (found == values.end() || found->second.shape() != value.shape())
        fail("{}: layer {} has {} {}, but this run needs {}; give both the same focus.{}", where, i,
             found == values.end() ? "no" : fmt::format("{}", found->second.shape()), name,
             value.shape(), config_.grouping.name);
      std::ranges::copy(found->second.span(), value.data());
    });
    grouping_->updates(i) = from.grouping().updates(i);
  }
  grouping_->fitted_context() = from.grouping().fitted_context();
}

}  // namespace focus
