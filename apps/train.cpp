#include <spdlog/spdlog.h>

#include <cmath>
#include <optional>

#include "apps/command.h"
#include "apps/mpi.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/settings/config.h"
#include "data/settings/struct_json.h"
#include "focus/models/fingerprint.h"
#include "focus/training/compare/run_outcome.h"
#include "focus/training/dry_run.h"
#include "focus/training/training.h"

namespace focus::app {
namespace {

void log_config(const RunConfig& config) {
  std::string text = dump_config(config);
  text.pop_back();  // the log ends its lines itself
  spdlog::info("{}", text);
}

std::string phase_name(const Session& session) {
  return session.in_first_phase() ? "phase 1" : "phase 2";
}

/// A run's output on stderr.
class TrainingTerminal {
 public:
  TrainingTerminal(const RunConfig& config, std::int64_t stop_at)
      : config_(config), stop_at_(stop_at) {}

  TrainingCallbacks callbacks() {
    return {
        .on_start = [this](const Session& session,
                           const auto& resumed) { start(session, resumed); },
        .on_step =
            [this](const Session&, const StepReport& report) {
              step_ = report.step;
              work_.reset();
              progress_->update(report.step, report.result.loss, config_.tokens_per_step());
            },
        .on_phase =
            [this](const Session& session) {
              progress_->note(fmt::format("{} from step {} on: {} parameters", phase_name(session),
                                          session.steps(), session.count_trainable()));
            },
        .on_line = [this](const Session&, const TrainingLine& line) { note(line); },
        .on_validation =
            [this](std::int64_t step, double loss) {
              work_.reset();
              progress_->note(fmt::format("step {}  valid loss {:.4f}  perplexity {:.2f}", step,
                                          loss, std::exp(loss)));
            },
        .on_work = [this](std::string_view name, double share) { work(name, share); },
        .should_stop = [this] { return stop_signal() != 0 || step_ == stop_at_; }};
  }
  void finish() { progress_->finish(); }

 private:
  void start(const Session& session, const std::optional<std::filesystem::path>& resumed) {
    if (resumed) spdlog::info("resumed at step {} from {}", session.steps(), resumed->string());
    log_config(config_);
    if (session.ranks().count() > 1)
      spdlog::info("{} processes share the {} micro-batches of a step", session.ranks().count(),
                   config_.data.gradient_accumulation_steps);
    spdlog::info("training on {} windows of {} tokens, {} parameters{}",
                 session.data().train.num_windows(), config_.data.context,
                 session.count_trainable(),
                 session.phase().steps == config_.steps ? "" : " in " + phase_name(session));
    progress_.emplace(ProgressOptions{
        .label = "train", .total_steps = config_.steps, .first_step = session.steps()});
  }
  void work(std::string_view name, double share) {
    constexpr std::int64_t kSteps = 100;
    if (!work_)
      work_.emplace(
          ProgressOptions{.label = std::string(name), .total_steps = kSteps, .inner = true});
    work_->update(static_cast<std::int64_t>(share * kSteps), NAN, 0);
    if (share >= 1) work_.reset();
  }
  void note(const TrainingLine& line) {
    const StepResult& done = line.report.result;
    progress_->note(
        fmt::format("step {}/{}  loss {:.4f}  grad norm {:.3g}  lr {:.2e}  {} tok/s  ETA {}",
                    line.report.step, config_.steps, done.loss, done.grad_norm, done.lr,
                    format_count(line.tokens_per_second), format_duration(line.seconds_left)));
    for (const std::size_t layer : line.collapsed)
      progress_->note(fmt::format(
          "warning: layer {}: the largest group has {:.1f} % of the tokens; the groups have "
          "collapsed (warn_largest_group {})",
          layer, 100 * line.report.groups[layer].dominance(), config_.warn_largest_group));
  }

  const RunConfig& config_;
  const std::int64_t stop_at_;
  std::int64_t step_ = 0;
  std::optional<Progress> progress_;
  std::optional<Progress> work_;  // beside the steps
};

/// For processes that do not print.
TrainingCallbacks silent_callbacks() {
  TrainingCallbacks callbacks;
  callbacks.should_stop = [] { return stop_signal() != 0; };
  return callbacks;
}

void tell_dry_run(const RunConfig& config, Session& session, const std::string& json) {
  if (session.ranks().count() > 1) fail("--dry-run runs in one process; start it without mpirun");
  log_config(config);
  const DryRun d = dry_run(session);
  fmt::print("{}", dry_run_text(d));
  write_json(json, struct_to_json(DryRunFigures::of(d)));
}

void train(const RunConfig& config, Session& session, const RunFolderOptions& options,
           std::int64_t stop_at, const std::string& json) {
  TrainingTerminal terminal(config, stop_at);
  const bool first = session.ranks().first();
  const TrainingResult result =
      run_training_in_folder(session, options, first ? terminal.callbacks() : silent_callbacks());
  if (!first) return;
  terminal.finish();
  if (!result.finished)
    spdlog::info("stopped at step {}; wrote checkpoint {}, --resume continues", result.steps,
                 result.checkpoint.string());
  else
    fmt::print("{}: {} steps{}\n", result.artifact.string(), result.steps,
               result.valid_loss && result.valid_loss_start
                   ? fmt::format(", validation perplexity {:.4f} -> {:.4f}",
                                 std::exp(*result.valid_loss_start), std::exp(*result.valid_loss))
                   : "");
  write_json(json, struct_to_json(TrainFigures{.finished = result.finished,
                                               .step = result.steps,
                                               .trainable = session.count_trainable(),
                                               .artifact = result.artifact.string(),
                                               .valid_loss_start = result.valid_loss_start,
                                               .valid_loss = result.valid_loss}));
}

}  // namespace

int run_train(Arguments arguments) {
  std::string config_file, json;
  bool dry = false;
  RunFolderOptions options;
  std::int64_t stop_at = 0;
  CLI::App app(
      "Trains by a config: centroids on a frozen base (retrofit), these and then the whole model "
      "(two_phase), all weights of a base (full), a new model (scratch), or low-rank adapters "
      "(lora).",
      "focus train");
  app.footer(
      "Several processes share the windows of each step: mpirun -n 4 focus train ... data.batch=8");
  add_config_arguments(app, config_file);
  app.add_flag("--dry-run", dry,
               "print parameters, memory, tokens and time, measured on one step; train nothing");
  app.add_flag("--resume", options.resume, "resume from the newest checkpoint in the run's folder");
  app.add_flag("--overwrite", options.overwrite,
               "start again even if the run's folder holds a run");
  app.add_option("--stop-at", stop_at, "write a checkpoint and stop after this step")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", json, "also write the figures to this JSON file");
  parse_arguments(app, arguments);

  RunConfig config;
  read_config_arguments(app, config_file, config);
  set_threads(config.threads);
  install_stop_signals();
  const std::unique_ptr<Ranks> ranks = join_ranks();
  run_as_one_of(*ranks, [&] {
    config = divided_config(config, ranks->count(), options);
    // The tokens that the first one makes all of them read.
    Session session = first_before_others(*ranks, [&] { return open_session(config); });
    session.divide(*ranks);
    if (dry)
      tell_dry_run(config, session, json);
    else
      train(config, session, options, stop_at, json);
  });
  return 0;
}

}  // namespace focus::app
