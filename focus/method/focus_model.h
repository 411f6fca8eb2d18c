#pragma once

#include <string>
#include <vector>

#include "focus/adapter.h"
#include "focus/method/attention/gate.h"
#include "focus/method/grouping/grouping.h"
#include "focus/method/summary/summary_attention.h"

namespace focus {

/// The gate of soft, hard or local attention, resolved, and but for soft the tokens' sets.
GateOptions gate_options(const FocusConfig& config, const AttentionSpec& attention,
                         const Routing& routing);

/// Focus on all layers of a decoder: the adapter that a retrofit trains.
class FocusModel : public Adapter {
 public:
  FocusModel(const FocusConfig& config, const FocusShape& shape, Rng& rng);
  FocusModel(const FocusConfig& config, Index hidden_size, Index num_layers, Rng& rng)
      : FocusModel(config, FocusShape{hidden_size, num_layers}, rng) {}

  const FocusConfig& config() const { return config_; }
  const FocusShape& shape() const { return shape_; }
  /// Who makes the groups.
  Grouping& grouping() { return *grouping_; }
  const Grouping& grouping() const { return *grouping_; }
  const GroupingKind& grouping_kind() const { return focus::grouping_kind(config_); }

  /// What the next forward passes run; what it leaves open is as config() has it.
  AttentionSpec mode;
  /// What training step `place` runs: with balance `carried` the first steps of the first phase
  /// train with `sequence`.
  AttentionSpec training_mode(const StepInfo& place) const;

  std::string_view kind() const override { return "focus"; }
  void attach(Decoder& decoder) override;
  void detach() override { attached_.reset(); }
  void visit_parameters(const std::function<void(const std::string&, Variable&)>& f) override;
  double lr_factor(const std::string& name) const override;
  void set_trainable(bool wanted) override { grouping_->set_trainable(wanted); }

  void begin_step(const StepInfo& place) override;
  /// The layers' terms of the loss (take_auxiliary_loss()).
  Variable after_forward() override;
  /// The groups of the last forward pass and what it moves the grouping's state towards.
  std::vector<double> step_statistics() const override;
  void merge_statistics(std::span<const double> record) override;
  bool divides() const override { return grouping_->divides(); }
  void end_step(std::int64_t steps_done) override { grouping_->end_step(steps_done); }
  std::vector<GroupStatistics> step_groups() const override { return step_groups_; }
  void begin_validation() override;

  void start_counting() override;
  void stop_counting() override { counting_ = false; }
  AttentionCounts counts() const override;

  /// All of it in /focus.
  void write(StoreWriter& store, const std::string& base_fingerprint) override;
  void restore(const StoreReader& store) override;
  /// The groups, what follows the tokens, and where they were fitted.
  void start_from(Adapter& other, const std::string& where) override;

  /// For layer_distillation: what each layer's attention is to add to the residual stream in the
  /// next forward pass, before bias and norm. Without them it is what dense attention adds on the
  /// same inputs, and the next layer continues from that.
  void expect_outputs(std::vector<Tensor> of_layers) { expected_ = std::move(of_layers); }
  /// Takes the layers' terms of the last forward pass with a graph, the grouping's or the error of
  /// layer_distillation, summed; undefined where the config has none. What a training step adds to
  /// its loss.
  Variable take_auxiliary_loss();

  /// The groups of each layer's last forward pass with summary attention, without its graph.
  const std::vector<GroupIds>& last_group_ids() const { return last_group_ids_; }

  /// What attach() makes the decoder's attention: that of `mode`.
  Variable attend(const MechanismInputs& in);

  /// What runs where `wanted` is asked for, with everything said: the local window of a grouping
  /// without tokens' groups is summary attention that reads no group.
  AttentionSpec runnable_mode(const AttentionSpec& wanted) const;

  /// The needs of the query heads of each layer; none where all have the same budget.
  std::vector<Tensor> head_needs();
  /// Summary attention of a layer, resolved, with each query head's budget of groups where needs
  /// are known.
  SummarySettings summary_of(const AttentionSpec& attention, Index layer);

 private:
  Variable attend_tokens(const MechanismInputs& in, const AttentionSpec& attention);
  Variable attend_summary(const MechanismInputs& in, const AttentionSpec& attention);
  /// Notes the layer's error of layer_distillation. Returns what the next layer continues from.
  Variable distilled(const MechanismInputs& in, const Variable& out);
  void gather_summary(const MechanismInputs& in, const GroupIds& group_ids,
                      const SummaryReport& report, const SummarySettings& settings);
  void gather(const MechanismInputs& in, const Routing& routing, const GateOptions& options,
              bool by_groups);

  FocusConfig config_;
  FocusShape shape_;
  std::unique_ptr<Grouping> grouping_;
  std::vector<GroupIds> last_group_ids_;  // of the last forward pass, without its graph
  std::vector<Variable> layer_errors_;    // of each layer, with its graph, until they are taken
  std::vector<Tensor> expected_;          // expect_outputs(), until they are taken
  std::vector<GroupStatistics> step_groups_;
  bool counting_ = false;
  std::vector<GroupStatistics> statistics_;  // of each layer since start_counting()
  std::optional<AttachedMechanism> attached_;
  Decoder* decoder_ = nullptr;  // that it is attached to
};

/// What a layer's o_proj, with its LoRA and without its bias, makes of what attention gave.
/// [batch, seq_len, heads, head_dim] -> [batch, seq_len, hidden_size]
Variable attention_output(Decoder& decoder, const MechanismInputs& in, const Variable& attended);

}  // namespace focus
