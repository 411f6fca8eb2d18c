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
  std::filesystem::path artifact;  // focus.h5 or model.h5, where finished
};

struct DryRun {
  Index trainable = 0, frozen = 0;
  std::size_t weight_bytes = 0, gradient_bytes = 0, optimiser_bytes = 0, activation_bytes = 0;
  std::int64_t tokens = 0;        // of the whole run
  std::int64_t train_tokens = 0;  // that there are
  double seconds_per_step = 0;
};

/// One run of a recipe: the same loop for every method. Writes into the run's folder config.yaml
/// (resolved), metrics.jsonl, checkpoints/ and in the end focus.h5 (retrofit) or model.h5. Throws
/// where a run cannot start, and where a loss or gradient is not finite: the checkpoints before it
/// stay.
class Trainer {
 public:
  explicit Trainer(RunConfig config);

  /// Parameters, memory, and the time of one timed step that changes nothing on disk.
  DryRun dry_run();
  TrainResult run(const TrainOptions& options);

  Decoder& decoder() { return *model_.decoder; }

 private:
  void build_model();
  void read_data();
  NamedParameters trainable();
  Index count_trainable() const;
  StepResult step_once(std::int64_t step);
  double validate_now();
  AttentionMode mode_at(std::int64_t step) const;
  void save_checkpoint(const std::filesystem::path& path, std::int64_t step, double valid_start);
  void restore_checkpoint(const std::filesystem::path& path, std::int64_t& step,
                          double& valid_start);
  std::filesystem::path write_artifact(std::int64_t step);

  RunConfig config_;
  LoadedModel model_;
  std::unique_ptr<FocusModel> focus_;
  std::optional<Batches> train_, valid_;
  std::string data_fingerprint_;  // of the training tokens
  std::unique_ptr<AdamW> adamw_;
};

/// Makes SIGINT and SIGTERM ask a running trainer to stop after its step; a second one ends the
/// program at once.
void install_stop_signals();

}  // namespace focus
