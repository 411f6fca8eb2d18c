#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/evaluate.h"
#include "apps/model_io.h"
#include "apps/run_config.h"
#include "data/batches.h"
#include "optim/training_step.h"

namespace focus {

struct TrainOptions {
  bool resume = false;
  bool overwrite = false;
  std::int64_t stop_at = 0;  // stop as a signal would after this step; 0: never
};

struct TrainResult {
  bool finished = false;           // false: stopped by a signal or stop_at; a checkpoint is there
  std::int64_t step = 0;           // steps done
  double valid_loss = 0;           // in nats per token, of the last validation
  double valid_loss_start = 0;     // before the first step
  std::filesystem::path artifact;  // focus.h5, lora.h5 or model.h5, where finished
};

struct DryRun {
  Index trainable = 0, frozen = 0;
  std::size_t weight_bytes = 0, gradient_bytes = 0, optimiser_bytes = 0, activation_bytes = 0;
  std::int64_t tokens = 0;        // of the whole run
  std::int64_t train_tokens = 0;  // that there are
  double seconds_per_step = 0;
};

/// What a timed pass runs.
enum class TimedPass { step, forward };

/// One run of a recipe: the same loop for every method. Writes into the run's folder config.yaml
/// (resolved), metrics.jsonl, checkpoints/ and in the end focus.h5 (retrofit), lora.h5 and
/// PEFT's two files (lora) or model.h5. Throws
/// where a run cannot start, and where a loss or gradient is not finite: the checkpoints before it
/// stay.
class Trainer {
 public:
  explicit Trainer(RunConfig config);
  /// The same without files, for timing alone: `shape` with random weights in the place of the
  /// base, and random ids in the place of the text. run() is not for it: nothing is validated.
  Trainer(RunConfig config, const ModelConfig& shape);

  /// Parameters, memory, and the time of one timed step that changes nothing on disk.
  DryRun dry_run();
  TrainResult run(const TrainOptions& options);
  /// Seconds of training step number `step`, or of its forward passes without a graph. Writes
  /// nothing to disk.
  double timed_pass(std::int64_t step, TimedPass pass = TimedPass::step);

  Decoder& decoder() { return *model_.decoder; }
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
  StepResult step_once(std::int64_t step);
  double validate_now();
  void save_checkpoint(const std::filesystem::path& path, std::int64_t step, double valid_start);
  void restore_checkpoint(const std::filesystem::path& path, std::int64_t& step,
                          double& valid_start);
  std::filesystem::path write_artifact(std::int64_t step);

  RunConfig config_;
  LoadedModel model_;
  std::unique_ptr<FocusModel> focus_;
  std::unique_ptr<LoraModel> lora_;
  std::unique_ptr<RivalModel> rival_;
  std::optional<Batches> train_, valid_;
  std::string data_fingerprint_;  // of the training tokens
  std::unique_ptr<AdamW> adamw_;
  std::vector<GroupStatistics> step_groups_;  // one a layer: group sizes of the last step
  double step_auxiliary_ = 0;  // balance and entropy terms of the last step, with their weights
};

/// The settings that decide what a run computes, as YAML: a resumed run must agree with them. Where
/// it writes and how often it reports is free to change.
std::string settings_that_count(RunConfig config);

/// Makes SIGINT and SIGTERM ask a running trainer to stop after its step; a second one ends the
/// program at once.
void install_stop_signals();

}  // namespace focus
