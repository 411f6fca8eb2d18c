#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cmath>
#include <optional>

#include "apps/command.h"
#include "apps/mpi.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/settings/struct_json.h"
#include "focus/training/show_examples.h"
#include "focus/training/training.h"

namespace focus::app {
namespace {

void log_config(const RunConfig& config) {
  std::string text = dump_config(config);
  text.pop_back();  // the log ends its lines itself
  spdlog::debug("{}", text);
}

std::string phase_name(const Session& session) {
  return session.in_first_phase() ? "phase 1" : "phase 2";
}

/// A step on stderr, and the warnings of a line.
void note_line(const RunConfig& config, const TrainingLine& line, Progress& progress) {
  const StepResult& done = line.report.result;
  const auto& pairs = line.report.preferences;
  progress.note(fmt::format(
      "step {}/{}  loss {:.4f}{}  grad norm {:.3g}  lr {:.2e}  {} tok/s{}", line.report.step,
      config.steps, done.loss,
      pairs
          ? fmt::format("  preferred {:.0f} %  margin {:.3f}", 100 * pairs->accuracy, pairs->margin)
          : "",
      done.grad_norm, done.lr, format_count(line.tokens_per_second), progress.left()));
  for (const std::size_t layer : line.collapsed)
    progress.note(fmt::format(
        "warning: layer {}: the largest group has {:.1f} % of the tokens; the groups have "
        "collapsed (warn_largest_group {})",
        layer, 100 * line.report.groups[layer].dominance(), config.warn_largest_group));
}

void tell_start(const Session& session, const std::optional<std::filesystem::path>& resumed) {
  const RunConfig& config = session.config();
  if (resumed) spdlog::info("resumed at step {} from {}", session.steps(), resumed->string());
  log_config(config);
  if (session.ranks().count() > 1)
    spdlog::info("{} processes share the {} micro-batches of a step", session.ranks().count(),
                 config.data.gradient_accumulation_steps);
  spdlog::info("training on {} windows of {} tokens, {} parameters{}; all settings are in {}",
               session.data().train.num_windows(), config.data.context, session.count_trainable(),
               session.phase().steps == config.steps ? "" : " in " + phase_name(session),
               (std::filesystem::path(config.out) / "config.yaml").string());
}

/// A run's output on stderr: `bar` for its steps, `inner` for work beside them.
TrainingCallbacks terminal_callbacks(const RunConfig& config, std::optional<Progress>& bar,
                                     std::optional<Progress>& inner) {
  return {
      .on_start =
          [&](const Session& session, const auto& resumed) {
            tell_start(session, resumed);
            bar.emplace(ProgressOptions{
                .label = "train", .total_steps = config.steps, .first_step = session.steps()});
          },
      .on_step =
          [&](const Session&, const StepReport& report) {
            inner.reset();
            bar->update(report.step, report.result.loss, config.tokens_per_step());
          },
      .on_phase =
          [&](const Session& session) {
            bar->note(fmt::format("{} from step {} on: {} parameters", phase_name(session),
                                  session.steps(), session.count_trainable()));
          },
      .on_line = [&](const Session&, const TrainingLine& line) { note_line(config, line, *bar); },
      .on_validation =
          [&](std::int64_t step, double loss) {
            inner.reset();
            bar->note(fmt::format(
                "step {}  valid loss {:.4f}{}", step, loss,
                config.prefers() ? "" : fmt::format("  perplexity {:.2f}", std::exp(loss))));
          },
      .on_work =
          [&](std::string_view name, double share) {
            constexpr std::int64_t kSteps = 100;
            if (!inner)
              inner.emplace(ProgressOptions{
                  .label = std::string(name), .total_steps = kSteps, .inner = true});
            inner->update(static_cast<std::int64_t>(share * kSteps), NAN, 0);
            if (share >= 1) inner.reset();
          }};
}

void tell_dry_run(Session& session, const std::string& json) {
  if (session.ranks().count() > 1) fail("--dry-run runs in one process; start it without mpirun");
  log_config(session.config());
  std::optional<Progress> timing;
  timing.emplace(ProgressOptions{.label = "timing a step", .inner = true});
  const DryRun d = dry_run(session);
  timing.reset();
  fmt::print("{}", dry_run_text(d));
  write_json(json, struct_to_json(d));
}

void tell_examples(const Session& session, Index count) {
  fmt::print("{}", shown_examples(session.data(), *session.model().tokenizer, count,
                                  isatty(STDOUT_FILENO) == 1));
}

/// A validation loss for the last line: as a perplexity where it is one of text.
std::string shown_loss(const RunConfig& config, double loss) {
  return fmt::format("{:.4f}", config.prefers() ? loss : std::exp(loss));
}

/// What the validation was of, and the command that measures the result.
void tell_next(Session& session, const TrainingResult& result) {
  const RunConfig& config = session.config();
  if (result.valid_loss)
    spdlog::info(
        "validation: attention {}, density {:.1f} %{}{}; {} windows of {} tokens",
        ActiveAttention(session.model(), own_attention(session.model())).title(),
        100 * result.validated.pairs_attended.value_or(1),
        result.validated.kl ? fmt::format(", KL to dense {:.4f} nats", *result.validated.kl) : "",
        result.validated.accuracy
            ? fmt::format(", {:.0f} % of the pairs preferred", 100 * *result.validated.accuracy)
            : "",
        session.validation_windows(), config.data.context);
  const bool is_model = config.trains_base();
  spdlog::info(
      "next: focus eval {} --text TEXT, a text that is not in data.train or data.valid",
      is_model ? result.artifact : fmt::format("{} --adapter {}", config.base, result.artifact));
}

void train(const RunConfig& config, Session& session, const RunFolderOptions& options,
           std::int64_t stop_at, const std::string& json) {
  const bool first = session.ranks().first();
  std::optional<Progress> bar, inner;
  TrainingCallbacks callbacks;
  if (first) callbacks = terminal_callbacks(config, bar, inner);
  callbacks.should_stop = [&] { return stop_signal() != 0 || session.steps() == stop_at; };
  const TrainingResult result = run_training_in_folder(session, options, callbacks);
  if (!first) return;
  bar->finish();
  const char* const what = config.prefers() ? "loss" : "perplexity";
  if (!result.finished)
    spdlog::info("stopped at step {}; wrote checkpoint {}, --resume continues", result.step,
                 result.checkpoint);
  else
    fmt::print("{}: {} steps{}{}\n", result.artifact, result.step,
               result.ended_early ? fmt::format(" of {}, the last {} validations without gain",
                                                config.steps, result.validations.without_gain)
                                  : "",
               result.valid_loss && result.validations.start
                   ? fmt::format(", validation {} {} -> {}", what,
                                 shown_loss(config, *result.validations.start),
                                 shown_loss(config, *result.valid_loss))
                   : "");
  if (!result.best.empty())
    fmt::print("{}: the best validation, after {} steps, {} {}\n", result.best,
               result.validations.best_step, what, shown_loss(config, *result.validations.best));
  if (result.finished) tell_next(session, result);
  write_json(json, struct_to_json(result));
}

}  // namespace

int run_train(Arguments arguments) {
  std::string config_file, json;
  bool dry = false;
  RunFolderOptions options;
  std::int64_t stop_at = 0, show = 0;
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
  app.add_option("--show-examples", show,
                 "print the first N windows that would be trained on, which of their tokens are "
                 "learned, and counts; train nothing")
      ->check(kPositive);
  app.add_flag("--resume", options.resume, "resume from the newest checkpoint in the run's folder");
  app.add_flag("--overwrite", options.overwrite,
               "start again even if the run's folder holds a run");
  app.add_option("--stop-at", stop_at, "write a checkpoint and stop after this step")
      ->check(kPositive);
  app.add_option("--json", json, kJsonHelp);
  parse_arguments(app, arguments);

  RunConfig config;
  read_config_arguments(app, config_file, config);
  set_threads(config.threads);
  install_stop_signals();
  const std::unique_ptr<Ranks> ranks = join_ranks();
  run_as_one_of(*ranks, [&] {
    config = divided_config(config, ranks->count(), options);
    std::optional<Progress> reading;
    if (ranks->first())
      reading.emplace(ProgressOptions{.label = "reading model and texts", .inner = true});
    // The tokens that the first one makes all of them read.
    Session session = first_before_others(*ranks, [&] { return open_session(config); });
    session.divide(*ranks);
    config.steps = session.config().steps;
    reading.reset();
    if (show > 0 && ranks->first()) tell_examples(session, show);
    if (dry)
      tell_dry_run(session, json);
    else if (show == 0)
      train(config, session, options, stop_at, json);
  });
  return 0;
}

}  // namespace focus::app
