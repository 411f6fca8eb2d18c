#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "focus/training/session.h"

namespace focus {

/// A line of a run's log: a step, and figures since the previous line.
struct TrainingLine {
  StepReport report;
  double tokens_per_second = 0;
  double seconds_left = 0;  // of the run
  /// Layers of which one group has more than warn_largest_group of the step's tokens, for the first
  /// time since the run was started or resumed.
  std::vector<std::size_t> collapsed = {};
};

/// Callbacks of a run; any may be empty.
struct TrainingCallbacks {
  /// Before the first step; `resumed` is the checkpoint that the run continues.
  std::function<void(const Session&, const std::optional<std::filesystem::path>& resumed)> on_start;
  std::function<void(const Session&, const StepReport&)> on_step;
  /// After a step that began the second phase.
  std::function<void(const Session&)> on_phase;
  std::function<void(const Session&, const TrainingLine&)> on_line;  // every log_every steps
  /// After a validation of `steps` steps, in nats per token.
  std::function<void(std::int64_t steps, double loss)> on_validation;
  /// While keys are fitted and while a validation runs.
  WorkProgress on_work;
  /// Asked after every step: true ends the run there, with a checkpoint.
  std::function<bool()> should_stop;
};

struct TrainingResult {
  bool finished = false;   // false: stopped
  std::int64_t steps = 0;  // done
  // In nats per token, of the last validation and of that before the first step; without validation
  // text neither is there.
  std::optional<double> valid_loss, valid_loss_start;
  std::filesystem::path artifact;    // of a finished run in a folder: focus.h5, lora.h5 or model.h5
  std::filesystem::path checkpoint;  // of a run in a folder: the newest
};

/// The steps that a session has left, with validations. Writes nothing. Throws where a loss, a
/// gradient or a parameter is not finite. Of several processes (Session::divide) each calls it, and
/// each comes to the same result.
TrainingResult run_training(Session& session, const TrainingCallbacks& callbacks = {});

struct RunFolderOptions {
  bool resume = false;     // resume from the newest checkpoint, if any
  bool overwrite = false;  // start again even if the folder holds a run
};
/// `config` with as many parts of a step (data.gradient_accumulation_steps) as `processes` need,
/// of fewer windows each (data.batch): the least number that is a multiple of the processes where
/// one divides the step's windows. A run that is resumed keeps the parts that it began with, and
/// with them its bits. Throws std::runtime_error where a step has fewer windows than processes.
RunConfig divided_config(RunConfig config, int processes, const RunFolderOptions& options);

/// The same in the folder config().out: config.yaml (resolved), metrics.jsonl, checkpoints/ and in
/// the end the result. Throws, too, where the run cannot start; the checkpoints before stay.
TrainingResult run_training_in_folder(Session& session, const RunFolderOptions& options,
                                      const TrainingCallbacks& callbacks = {});

/// What a run takes while it is in one phase.
struct DryPhase {
  std::int64_t steps = 0;
  Index trainable = 0, frozen = 0;
  std::size_t gradient_bytes = 0, optimiser_bytes = 0;
  std::size_t activation_bytes = 0;  // what else a step takes from the pool of buffers
  /// All that the process has in memory of its own then, and of it what no tensor holds: the
  /// program, the tokenizer. What is mapped is in neither.
  std::size_t memory_bytes = 0, program_bytes = 0;
  double seconds_per_step = 0;
};

struct DryRun {
  std::vector<DryPhase> phases;                    // in their order; the last one trains the most
  std::size_t weight_bytes = 0, mapped_bytes = 0;  // `mapped`: of these, what stays in its file
  std::int64_t tokens = 0;                         // of the whole run
  std::int64_t train_tokens = 0;                   // that there are
  double seconds() const;                          // of the whole run
  double tokens_per_step() const;
};

/// Parameters, memory, and the time of one timed step of each phase. Changes nothing on disk, but
/// leaves the session trained by a few steps.
DryRun dry_run(Session& session);

}  // namespace focus
