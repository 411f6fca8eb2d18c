#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/settings/members.h"
#include "focus/training/session.h"

namespace focus {

/// A line of a run's log: a step, and figures since the previous line.
struct TrainingLine {
  StepReport report;
  double tokens_per_second = 0;
  /// Layers of which one group has more than warn_largest_group of the step's tokens, for the first
  /// time since the run was started or resumed.
  std::vector<std::size_t> collapsed = {};
};

/// Callbacks of a run; any may be empty.
struct TrainingCallbacks {
  /// Before the first step; `resumed` is the checkpoint that the run continues.
  std::function<void(const Session&, const std::optional<std::filesystem::path>& resumed)>
      on_start = {};
  std::function<void(const Session&, const StepReport&)> on_step = {};
  /// After a step that began the second phase.
  std::function<void(const Session&)> on_phase = {};
  std::function<void(const Session&, const TrainingLine&)> on_line = {};  // every log_every steps
  /// After a validation of `steps` steps, in nats per token.
  std::function<void(std::int64_t steps, double loss)> on_validation = {};
  /// While keys are fitted and while a validation runs.
  WorkProgress on_work = {};
  /// Asked after every step: true ends the run there, with a checkpoint.
  std::function<bool()> should_stop = {};
};

/// The validations of a run so far, losses in nats per token.
struct Validations {
  std::optional<double> start = {};  // before the first step
  std::optional<double> best = {};   // the lowest of the last phase, where groups are placed
  std::int64_t best_step = 0;        // steps done then
  std::int64_t without_gain = 0;     // validations since
};

/// What a run came to; its visit is what `focus train --json` writes.
struct TrainingResult {
  bool finished = false;     // false: stopped
  bool ended_early = false;  // patience has run out: finished, with fewer steps
  std::int64_t step = 0;     // steps done
  std::int64_t trainable = 0;
  std::string artifact = {};    // of a finished run in a folder: focus.h5, lora.h5 or model.h5
  std::string checkpoint = {};  // of a run in a folder: the newest
  std::string best = {};        // of one that keeps it: the result of the lowest validation loss
  // In nats per token; without validation text neither is there.
  Validations validations = {};
  std::optional<double> valid_loss = {};    // the last
  Session::Validated validated = {};        // by the last validation
  std::int64_t tokens = 0, peak_bytes = 0;  // of the whole run; of this process's resident memory
  double tokens_per_second = 0;             // of a run in a folder: the median of its log lines

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, finished, step, ended_early, trainable, artifact, best);
    f.maybe("valid_loss_start", validations.start);
    f.maybe("valid_loss", valid_loss);
    f.maybe("valid_loss_best", validations.best);
    if (validations.best) f("best_step", validations.best_step);
    f.maybe("pairs_attended", validated.pairs_attended);
    f.maybe("kl", validated.kl);
    f.maybe("valid_accuracy", validated.accuracy);
    FOCUS_MEMBERS(f, peak_bytes, tokens_per_second, tokens);
  }
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
/// the end the result; in best/ that of the lowest validation loss (keep_best). Throws, too, where
/// the run cannot start; the checkpoints before stay.
TrainingResult run_training_in_folder(Session& session, const RunFolderOptions& options,
                                      const TrainingCallbacks& callbacks = {});

/// Writes everything that the next step depends on except a frozen base: settings, trained
/// parameters, optimiser, position in the data, validations.
///
/// A checkpoint belongs to the phase of its last step: at the end of two_phase's first phase it is
/// that of a retrofit, and the next step begins the second phase.
void write_checkpoint(const std::filesystem::path& path, Session& session,
                      const Validations& validations);

/// Restores a session of the same config, base and text; throws, naming the difference, if they
/// differ.
Validations restore_checkpoint(const std::filesystem::path& path, Session& session);

/// Writes a finished session's result into a folder: focus.h5 (retrofit), lora.h5 and PEFT's two
/// files (lora), or model.h5. Returns the store's path.
std::filesystem::path write_result(const std::filesystem::path& folder, Session& session);

/// What a run takes. Its visit is what `focus train --dry-run --json` writes: the last phase, which
/// trains the most, at the top; with more than one phase `phases` lists each.
struct DryRun {
  struct Phase {
    std::optional<std::int64_t> steps = {};
    std::int64_t trainable = 0, frozen = 0;  // parameters
    // mapped_bytes: weights that stay in their file; activation_bytes: what else a step takes from
    // the pool of buffers; memory_bytes: the process's own memory; program_bytes: the part of it
    // that no tensor holds, such as the program and the tokenizer.
    std::int64_t weight_bytes = 0, gradient_bytes = 0, optimiser_bytes = 0;
    std::int64_t activation_bytes = 0, program_bytes = 0, memory_bytes = 0, mapped_bytes = 0;
    double seconds_per_step = 0, tokens_per_second = 0;

    void visit(auto&& f) {
      f.maybe("steps", steps);
      FOCUS_MEMBERS(f, trainable, frozen, weight_bytes, gradient_bytes, optimiser_bytes,
                    activation_bytes, program_bytes, memory_bytes, mapped_bytes, seconds_per_step,
                    tokens_per_second);
    }
  };
  std::vector<Phase> phases = {};                               // in their order
  std::int64_t tokens = 0, train_tokens = 0;                    // of the whole run; that there are
  double seconds = 0, fit_seconds = 0, validation_seconds = 0;  // of the whole run; of its parts

  void visit(auto&& f) {
    Phase last = phases.back();
    last.steps.reset();
    last.visit(f);
    FOCUS_MEMBERS(f, tokens, train_tokens, seconds, fit_seconds, validation_seconds);
    if (phases.size() > 1) f("phases", phases);
  }
};

/// Parameters, memory, and the time of one timed step of each phase. Changes nothing on disk, but
/// leaves the session trained by a few steps.
DryRun dry_run(Session& session);
/// For a terminal.
std::string dry_run_text(const DryRun& run);

}  // namespace focus
