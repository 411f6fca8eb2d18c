#include "focus/training/session.h"

#include "autograd/base/check.h"
#include "focus/training/fit.h"

namespace focus {
namespace {

/// The factor of each part's mean loss: the step's loss is the mean over all its target tokens, as
/// in transformers. 1 if all parts have equally many.
std::vector<Real> weights_of_parts(const std::vector<Batch>& parts) {
  std::vector<Real> weights(parts.size(), 1);
  if (parts.front().documents.empty()) return weights;
  std::vector<Index> targets;
  Index all = 0;
  for (const Batch& part : parts) all += targets.emplace_back(count_targets(part));
  for (std::size_t i = 0; i < parts.size(); ++i)
    weights[i] = static_cast<Real>(static_cast<double>(targets[i]) *
                                   static_cast<double>(parts.size()) / static_cast<double>(all));
  return weights;
}

}  // namespace

void check_positions(const RunConfig& config, const LoadedModel& model) {
  const Index positions = model.decoder->config().max_position_embeddings;
  if (config.data.context > positions)
    fail("data.context {} is longer than the {} positions of {}; set data.context={} or less",
         config.data.context, positions, model.where, positions);
}

Session::Session(RunConfig config, LoadedModel model, TrainingData data,
                 std::unique_ptr<Decoder> teacher)
    : config_(std::move(config)),
      model_(std::move(model)),
      data_(std::move(data)),
      teacher_(std::move(teacher)) {
  config_.validate_step();
  check(teacher_ != nullptr || !config_.needs_teacher(),
        "session: a run that changes the base needs a separate teacher");
  check_positions(config_, model_);
  for (const auto& adapter : model_.adapters) {
    if (data_.train.by_document() && !adapter->separates_documents())
      fail(
          "{}: it learns from whole windows and cannot separate the documents in one; train "
          "another attention, or this one on plain text with data.packing=wrapped",
          adapter->name());
    adapter->set_trainable(true);
  }
  enter_phase(0);
}

void Session::divide(Ranks& ranks) {
  if (config_.data.gradient_accumulation_steps < ranks.count())
    fail(
        "a step of this run has {} micro-batches (data.gradient_accumulation_steps), too few for "
        "{} processes; start at most {}",
        config_.data.gradient_accumulation_steps, ranks.count(),
        config_.data.gradient_accumulation_steps);
  for (const auto& adapter : model_.adapters)
    if (ranks.count() > 1 && !adapter->divides())
      fail(
          "{}: its centroids are updated after each micro-batch, which {} processes cannot share; "
          "train it in one process",
          adapter->name(), ranks.count());
  ranks_ = &ranks;
}

void Session::enter_phase(std::int64_t step) {
  phase_ = config_.phase_at(step);
  trains_base_ = config_.trains_base_at(step);
  set_requires_grad(*model_.decoder, trains_base_);
  if (LoraModel* const lora = model_.lora())
    lora->set_trainable(config_.method == Method::lora || !in_first_phase());
  adamw_.reset();  // its moments' memory is the next one's
  adamw_ = std::make_unique<AdamW>(trainable(), phase_.optim);
  steps_ = step;
}

void Session::seek(std::int64_t steps) {
  enter_phase(std::max<std::int64_t>(steps, 1) - 1);
  steps_ = steps;
}

NamedParameters Session::trainable() {
  NamedParameters parameters;
  const auto add = [&](const std::string& name, const Weight& p) {
    if (p.requires_grad()) parameters.push_back({name, p.variable()});
  };
  for_each_parameter(*model_.decoder, add, "model");
  for (const auto& adapter : model_.adapters) adapter->visit_parameters(add);
  return parameters;
}

void Session::place_keys(const WorkProgress& progress) {
  FocusModel* const focus = model_.focus();
  if (focus == nullptr) return;
  if (const Index tokens = focus->grouping().tokens_to_fit(steps_); tokens > 0)
    fit_focus(*model_.decoder, *focus, data_.train, tokens,
              static_cast<std::uint64_t>(config_.seed), [&](Index done, Index all) {
                if (progress) progress("fit", static_cast<double>(done) / static_cast<double>(all));
              });
}

Tensor Session::teach(const Batch& batch, std::vector<Tensor>* outputs) {
  const NoGrad guard;
  Decoder& teacher = teacher_ ? *teacher_ : *model_.decoder;
  const WithoutLora without(model_.lora(), *model_.decoder);
  AttentionMechanism dense;
  if (outputs != nullptr)
    dense = [&teacher, outputs](const MechanismInputs& in) {
      Variable out = attention(in.q, in.k, in.v, in.options);
      outputs->push_back(attention_output(teacher, in, out).value());
      return out;
    };
  const AttachedMechanism attached(teacher, dense);
  return teacher.hidden_states(batch.ids, batch.batch, 0, pass_over(batch)).value();
}

Variable Session::loss_of(const Batch& batch, const ForwardContext& context,
                          PreferenceFigures& figures) {
  Decoder& decoder = *model_.decoder;
  if (config_.prefers()) {
    const Tensor reference = teach(batch);
    const Variable hidden =
        decoder.hidden_states(batch.ids, batch.batch, 0, pass_over(batch, context));
    return preference_loss(decoder, hidden, reference, teacher_.get(), batch, config_.dpo_beta,
                           figures);
  }
  FocusModel* const focus = model_.focus();
  const bool placed = focus != nullptr && focus->mode.kind != AttentionKind::dense;
  const Objective objective = placed ? focus->config().objective : Objective::lm;
  if (objective == Objective::lm) return batch_loss(decoder, batch, context);
  const bool by_layer = objective == Objective::layer_distillation;
  Tensor reference;
  if (!by_layer) {
    reference = teach(batch);
  } else if (trains_base_ || model_.lora() != nullptr) {
    // Where the layers themselves are trained, what they receive is their own.
    std::vector<Tensor> outputs;
    teach(batch, &outputs);
    focus->expect_outputs(std::move(outputs));
  }
  const Variable hidden =
      decoder.hidden_states(batch.ids, batch.batch, 0, pass_over(batch, context));
  Variable loss = by_layer ? focus->take_auxiliary_loss()
                           : decoder.kl_divergence(hidden, reference, teacher_.get());
  const auto lm_weight = static_cast<Real>(focus->config().lm_weight);
  if (lm_weight == 0) return loss;
  return add(loss, scale(decoder.cross_entropy(hidden, batch.targets()), lm_weight));
}

StepReport Session::step(const WorkProgress& progress) {
  if (config_.phase_at(steps_).first != phase_.first) enter_phase(steps_);
  const auto& adapters = model_.adapters;
  place_keys(progress);
  for (const auto& adapter : adapters) adapter->begin_step(place_of(steps_));
  // They may depend on where the adapters' parameters began, which is not known when these are
  // made.
  adamw_->set_lr_factors([&](const std::string& name) {
    double factor = LoraModel::is_of_b(name) ? phase_.optim.lora_plus_ratio : 1;
    for (const auto& adapter : adapters) factor *= adapter->lr_factor(name);
    return factor;
  });
  StepReport report;
  const int parts = config_.data.gradient_accumulation_steps;
  // Every process goes through all of the data and computes its own parts.
  std::vector<Batch> batches;
  batches.reserve(parts);
  for (int part = 0; part < parts; ++part) batches.push_back(data_.train.next());
  for (const Batch& batch : batches) report.tokens += static_cast<Index>(batch.ids.size());
  const std::vector<Real> weights = weights_of_parts(batches);
  // A record for each own part: the loss of the text, whether there is an auxiliary loss and that,
  // what dpo says, and for each adapter the number of its statistics and these.
  std::vector<std::vector<double>> records;
  const auto loss_of_part = [&](int part) {
    const auto at = static_cast<std::size_t>(part);
    // Another key for every pass of every run: a resumed run drops what it would have dropped.
    Rng rng(static_cast<std::uint64_t>(config_.seed));
    PreferenceFigures figures;
    Variable loss =
        loss_of(batches[at],
                {.dropout_key = rng.next() + static_cast<std::uint64_t>(steps_ * parts + part),
                 .dropout = trains_base_ ? config_.model.dropout : 0,
                 .recompute_layers = config_.activation_checkpointing},
                figures);
    if (weights[at] != 1) loss = scale(loss, weights[at]);
    std::vector<double> record = {static_cast<double>(loss.value()[0]), 0, 0, figures.accuracy,
                                  figures.margin};
    for (const auto& adapter : adapters) {
      if (const Variable terms = adapter->after_forward(); terms.defined()) {
        record[1] = 1;
        record[2] += static_cast<double>(terms.value()[0]);
        loss = add(loss, terms);
      }
      const std::vector<double> statistics = adapter->step_statistics();
      record.push_back(static_cast<double>(statistics.size()));
      record.insert(record.end(), statistics.begin(), statistics.end());
    }
    records.push_back(std::move(record));
    return loss;
  };
  report.result = training_step(*adamw_, phase_, steps_, parts, loss_of_part, *ranks_);
  double loss_of_text = 0;
  for (const std::vector<double>& record : gather_parts(*ranks_, parts, records)) {
    loss_of_text += record[0] / parts;
    if (config_.prefers()) {
      PreferenceFigures& all =
          report.preferences ? *report.preferences : report.preferences.emplace();
      all.loss += record[0] / parts;
      all.accuracy += record[3] / parts;
      all.margin += record[4] / parts;
    }
    if (record[1] != 0)
      report.auxiliary_loss = report.auxiliary_loss.value_or(0) + record[2] / parts;
    auto next = record.begin() + 5;
    for (const auto& adapter : adapters) {
      const auto end = next + 1 + static_cast<std::ptrdiff_t>(*next);
      adapter->merge_statistics(std::span(next + 1, end));
      next = end;
    }
  }
  report.step = ++steps_;
  for (const auto& adapter : adapters) {
    adapter->end_step(steps_);
    if (auto groups = adapter->step_groups(); !groups.empty()) report.groups = std::move(groups);
  }
  report.result.loss = loss_of_text;
  return report;
}

std::optional<double> Session::validate(const WorkProgress& progress, std::int64_t most) {
  place_keys(progress);
  if (!data_.valid) return std::nullopt;
  const NoGrad guard;
  for (const auto& adapter : model_.adapters) adapter->begin_validation();
  const Index all = data_.valid->num_windows();
  const Index windows = std::min<Index>(validation_windows(), most);
  const bool distils = finished() && config_.distils();
  // Spread over the text: its first windows alone may all be of one book.
  std::vector<std::vector<double>> records;
  for (Index i = 0; i < windows; ++i) {
    if (!ranks_->owns(static_cast<int>(i))) continue;
    if (progress) progress("validate", static_cast<double>(i) / static_cast<double>(windows));
    records.push_back(validation_record(data_.valid->windows(i * all / windows, 1), distils));
  }
  if (progress) progress("validate", 1);
  std::vector<double> sums(6);
  for (const auto& record : gather_parts(*ranks_, static_cast<int>(windows), records))
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += record[i];
  validated_ = {};
  if (sums[3] > 0) validated_.pairs_attended = sums[2] / sums[3];
  if (distils) validated_.kl = sums[4] / sums[1];
  if (config_.prefers()) validated_.accuracy = sums[5] / sums[1];
  return sums[0] / sums[1];
}

std::vector<double> Session::validation_record(const Batch& batch, bool distils) {
  Decoder& decoder = *model_.decoder;
  // Windows of documents have more tokens that count or fewer, others all as many.
  const double weight =
      batch.documents.empty() || config_.prefers() ? 1 : static_cast<double>(count_targets(batch));
  for (const auto& adapter : model_.adapters) adapter->start_counting();
  const Variable hidden = decoder.hidden_states(batch.ids, batch.batch, 0, pass_over(batch));
  PairCounts pairs;
  for (const auto& adapter : model_.adapters) {
    adapter->stop_counting();
    pairs += adapter->counts().pairs;
  }
  double kl = 0;
  if (config_.prefers()) {
    PreferenceFigures figures;
    preference_loss(decoder, hidden, teach(batch), teacher_.get(), batch, config_.dpo_beta,
                    figures);
    return {
        figures.loss,    1, static_cast<double>(pairs.attended), static_cast<double>(pairs.all), 0,
        figures.accuracy};
  }
  const auto loss = static_cast<double>(decoder.cross_entropy(hidden, batch.targets()).value()[0]);
  if (distils) {
    const Tensor reference = teach(batch);
    kl = static_cast<double>(decoder.kl_divergence(hidden, reference, teacher_.get()).value()[0]);
  }
  return {
      weight * loss, weight, static_cast<double>(pairs.attended), static_cast<double>(pairs.all),
      weight * kl,   0};
}

Index Session::count_trainable() const {
  Index count = 0;
  for (const NamedParameter& p : adamw_->parameters()) count += p.variable.value().size();
  return count;
}

Index Session::count_all() {
  Index count = count_parameters(*model_.decoder);
  for (const auto& adapter : model_.adapters)
    adapter->visit_parameters([&](const std::string&, Variable& p) { count += p.shape().size(); });
  return count;
}

std::size_t Session::weight_bytes() {
  std::size_t bytes = 0;
  const auto add = [&](const std::string&, const Weight& p) { bytes += p.bytes(); };
  for_each_parameter(*model_.decoder, add);
  for (const auto& adapter : model_.adapters) adapter->visit_parameters(add);
  return bytes;
}

}  // namespace focus
