#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokens/batches.h"
#include "focus/models/model_files.h"
#include "focus/training/preferences.h"
#include "focus/training/run_config.h"
#include "optim/training_step.h"

namespace focus {

/// What a run reads: windows to train on, and where there are some, windows to validate on.
struct TrainingData {
  Batches train;
  std::optional<Batches> valid = {};
  std::string fingerprint = {};  // of the training tokens
};

/// What one training step did.
struct StepReport {
  std::int64_t step = 0;                // steps done, this one included
  Index tokens = 0;                     // that it has seen
  StepResult result;                    // its loss is that of the text alone
  std::vector<GroupStatistics> groups;  // one a layer, without pairs; empty without groups
  std::optional<PreferenceFigures> preferences = {};  // with objective dpo
  std::optional<double> auxiliary_loss = {};  // what adapters added to the loss, with their weights
};

/// Told of work beside the steps, "fit" or "validate", and which share of it is done, 0 to 1.
using WorkProgress = std::function<void(std::string_view work, double share)>;

/// A training in progress: a model and what is put onto it, the position in its data, the
/// optimiser. No files, no printing, no signals; run_training() is the loop around it.
///
/// The config's method decides what is trained: all of the model (full, scratch, the second phase
/// of two_phase), and always what the model's adapters have to train.
class Session {
 public:
  /// `model` has its adapters on. Throws std::invalid_argument where settings do not fit together,
  /// and as check_positions(). `teacher` is the base before any step, where the config needs one
  /// with weights of its own (RunConfig::needs_teacher()).
  Session(RunConfig config, LoadedModel model, TrainingData data,
          std::unique_ptr<Decoder> teacher = nullptr);

  const RunConfig& config() const { return config_; }
  LoadedModel& model() { return model_; }
  const LoadedModel& model() const { return model_; }
  TrainingData& data() { return data_; }
  const TrainingData& data() const { return data_; }
  AdamW& optimiser() { return *adamw_; }

  /// From now on `ranks`, which must outlive the session, share its steps; each of them has opened
  /// the same session. Throws std::runtime_error where the parts of a step are fewer than they, and
  /// where what is trained cannot be divided.
  void divide(Ranks& ranks);
  Ranks& ranks() const { return *ranks_; }

  /// Steps done.
  std::int64_t steps() const { return steps_; }
  bool finished() const { return steps_ == config_.steps; }
  /// Goes to where `steps` have been done, in the phase that the last of them belongs to, with an
  /// optimiser that remembers nothing. Neither parameters nor the position in the data change.
  void seek(std::int64_t steps);
  /// Goes to before step number `step`, in its phase, with an optimiser that remembers nothing.
  void enter_phase(std::int64_t step);

  /// The next step. Throws std::runtime_error naming it where a loss or a gradient is not finite;
  /// no parameter has been changed then.
  StepReport step(const WorkProgress& progress = {});
  /// Fits groups of keys whose step has come (focus.keys.fit_step).
  void place_keys(const WorkProgress& progress = {});
  /// The mean loss of config().eval_windows windows, in nats per token; nothing where there is no
  /// validation text. Places groups of keys whose step has come, as step() does. Of fewer windows
  /// where they are more than `most`.
  std::optional<double> validate(const WorkProgress& progress = {},
                                 std::int64_t most = std::numeric_limits<std::int64_t>::max());
  /// Windows of a validation; 0 without text.
  Index validation_windows() const {
    return data_.valid ? std::min<Index>(config_.eval_windows, data_.valid->num_windows()) : 0;
  }
  /// What the last validation computed beside the loss.
  struct Validated {
    std::optional<double> pairs_attended = {};  // share of the causal pairs, where counted
    std::optional<double> accuracy = {};        // of pairs, with objective dpo
    std::optional<double> kl = {};  // KL(teacher || trained) of a finished run that distils, nats
  };
  const Validated& validated() const { return validated_; }

  /// The phase of the last step done; that of the first step before it.
  const TrainingPhase& phase() const { return phase_; }
  bool in_first_phase() const { return phase_.first == 0; }
  /// Whether the phase trains the model's own parameters.
  bool trains_base() const { return trains_base_; }
  /// The attention of step `step`; dense without Focus.
  AttentionSpec mode_at(std::int64_t step) const {
    return model_.focus() ? model_.focus()->training_mode(place_of(step)) : AttentionSpec{};
  }

  /// Parameters that this phase trains.
  Index count_trainable() const;
  /// Parameters of the decoder and its adapters.
  Index count_all();
  std::size_t weight_bytes();
  /// The base's fingerprint; if the base is trained, the model's current one.
  std::string base_fingerprint() {
    return trains_base_ ? model_fingerprint(*model_.decoder) : model_.fingerprint();
  }

 private:
  NamedParameters trainable();
  /// Returns a window's loss, weight, attended pairs, causal pairs, KL and whether the chosen
  /// answer is preferred; loss, KL and that are multiplied by the weight.
  std::vector<double> validation_record(const Batch& batch, bool distils);
  /// The loss of focus.objective, or of objective dpo, whose figures then are there.
  Variable loss_of(const Batch& batch, const ForwardContext& context, PreferenceFigures& figures);
  /// The hidden states of the base as it is, with dense attention and without a LoRA. Where
  /// `outputs` is given it becomes what each layer's attention adds there, before bias and norm.
  Tensor teach(const Batch& batch, std::vector<Tensor>* outputs = nullptr);
  StepInfo place_of(std::int64_t step) const {
    const TrainingPhase phase = config_.phase_at(step);
    return {.step = step, .first_phase = phase.first == 0, .steps = phase.steps};
  }

  RunConfig config_;
  LoadedModel model_;
  TrainingData data_;
  std::unique_ptr<Decoder> teacher_;  // null: the model itself, its weights being the base's
  TrainingPhase phase_;
  bool trains_base_ = false;
  std::unique_ptr<AdamW> adamw_;
  std::int64_t steps_ = 0;
  Validated validated_;
  Ranks* ranks_ = &one_process();
};

/// Opens what a config names: base or new model, tokenizer, texts (tokenized into the cache), and
/// composes what its method trains. Throws where a file or a setting is not as it should be.
Session open_session(const RunConfig& config);
/// The model of open_session() alone, its adapters on.
LoadedModel open_training_model(const RunConfig& config);
/// Its texts.
TrainingData open_training_data(const RunConfig& config, const LoadedModel& model);
/// Throws std::runtime_error where the model has fewer positions than data.context.
void check_positions(const RunConfig& config, const LoadedModel& model);
/// Puts what the config asks for onto a model.
void attach_adapters(const RunConfig& config, LoadedModel& model, Rng& rng);

/// A session of that shape with random weights and random ids, to time steps: no files are read.
Session random_session(const RunConfig& config, const ModelConfig& shape);

}  // namespace focus
