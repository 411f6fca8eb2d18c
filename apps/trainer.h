#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "focus/train/evaluate.h"
#include "focus/train/model_io.h"
#include "focus/train/run_config.h"
#include "data/text/batches.h"
#include "optim/training_step.h"

namespace focus {

struct TrainOptions {
  bool resume = false;
  bool overwrite = false;
  std::int64_t stop_at = 0;  // stop as a signal would after this step; 0: never
};

struct TrainResult {
  bool finished = false;  // false: stopped by a signal or stop_at; a checkpoint is there
  std::int64_t step = 0;  // steps done
  // In nats per token, of the last validation and of that before the first step; without
  // validation text neither is there.
  std::optional<double> valid_loss, valid_loss_start;
  std::filesystem::path artifact;  // focus.h5, lora.h5 or model.h5, where finished
};

/// What a run takes while it is in one phase.
struct DryPhase {
  std::int64_t steps = 0;
  Index trainable = 0, frozen = 0;
  std::size_t gradient_bytes = 0, optimiser_bytes = 0, activation_bytes = 0;
  double seconds_per_step = 0;
};

struct DryRun {
  std::vector<DryPhase> phases;  // in their order; the last one trains the most
  std::size_t weight_bytes = 0;
  std::int64_t tokens = 0;        // of the whole run
  std::int64_t train_tokens = 0;  // that there are
  double seconds() const;         // of the whole run
  double tokens_per_step() const;
};

/// What a timed pass runs.
enum class TimedPass { step, forward };

/// One run of a recipe: the same loop for every method. Writes into the run's folder config.yaml
/// (resolved), metrics.jsonl, checkpoints/ and in the end focus.h5 (retrofit), lora.h5 and
/// PEFT's two files (lora) or model.h5. Throws where a run cannot start, and where a loss or
/// gradient is not finite: the checkpoints before it stay.
///
/// A checkpoint is of the phase of the last step done: at the end of two_phase's first one it holds
/// what a retrofit's holds, and the next step begins the second.
class Trainer {
 public:
  explicit Trainer(RunConfig config);
  /// The same without files, for timing alone: `shape` with random weights in the place of the
  /// base, and random ids in the place of the text. run() is not for it: nothing is validated.
  Trainer(RunConfig config, const ModelConfig& shape);

  /// Parameters, memory, and the time of one timed step of each phase. Changes nothing on disk.
  DryRun dry_run();
  TrainResult run(const TrainOptions& options);
  /// Seconds of training step number `step`, or of its forward passes without a graph. Writes
  /// nothing to disk.
  double timed_pass(std::int64_t step, TimedPass pass = TimedPass::step);

  Decoder& decoder() { return *model_.decoder; }
  /// Of the phase that the run is in.
  Index count_trainable() const;
  /// Of the decoder and of what is put onto it.
  Index count_all();
  /// What attention step number `step` runs; dense where there is no Focus.
  AttentionMode mode_at(std::int64_t step) const;

 private:
  void build_model();
  void compose(Rng& rng);
  void read_data();
  NamedParameters trainable();
  /// Makes the phase of `step` the one that is trained, with a new optimiser.
  void enter_phase(std::int64_t step);
  DryPhase dry_phase(std::int64_t step);
  std::string phase_name() const;
  StepResult step_once(std::int64_t step);
  /// The mean loss of eval_windows windows; nothing where there is no validation text.
  std::optional<double> validate_now();
  void save_checkpoint(const std::filesystem::path& path, std::int64_t step,
                       std::optional<double> valid_start);
  void restore_checkpoint(const std::filesystem::path& path, std::int64_t& step,
                          std::optional<double>& valid_start);
  std::filesystem::path write_artifact(std::int64_t step);

  RunConfig config_;
  LoadedModel model_;
  std::unique_ptr<FocusModel> focus_;
  std::unique_ptr<LoraModel> lora_;
  std::unique_ptr<RivalModel> rival_;
  std::optional<Batches> train_, valid_;
  std::string data_fingerprint_;  // of the training tokens
  TrainingPhase phase_;
  bool trains_base_ = false;  // in this phase
  std::unique_ptr<AdamW> adamw_;
  std::vector<GroupStatistics> step_groups_;  // one a layer: group sizes of the last step
  double step_auxiliary_ = 0;  // balance and entropy terms of the last step, with their weights
};

/// The settings that decide what a run computes, as YAML: a resumed run must agree with them. Where
/// it writes and how often it reports is free to change.
std::string settings_that_count(const RunConfig& config);
/// The config with the rest at its defaults.
RunConfig only_what_counts(RunConfig config);

/// Makes SIGINT and SIGTERM ask a running trainer to stop after its step; a second one ends the
/// program at once.
void install_stop_signals();

}  // namespace focus
