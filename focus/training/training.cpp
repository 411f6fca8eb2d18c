#include "focus/training/training.h"

#include <cmath>
#include <numeric>
#include <set>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/base/profile.h"
#include "data/files/durable_file.h"
#include "data/settings/config.h"
#include "data/tensors/checkpoint_folder.h"
#include "focus/training/event_file.h"
#include "focus/training/metrics.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

/// An update may leave numbers that no loss has seen yet: they must not reach a checkpoint.
void check_finite(const NamedParameters& parameters, std::int64_t steps) {
  for (const NamedParameter& p : parameters)
    for (const Real x : p.variable.value().span())
      if (!std::isfinite(x))
        fail("step {}: {} is not finite after the update; lower optim.lr", steps, p.name);
}

/// A figure of each layer under `name`_layers, and their mean under `name`.
template <class Figure>
void add_by_layer(nlohmann::ordered_json& record, const std::string& name,
                  const std::vector<GroupStatistics>& layers, Figure&& figure) {
  std::vector<double> values;
  values.reserve(layers.size());
  for (const GroupStatistics& layer : layers) values.push_back(figure(layer));
  record[name] =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  record[name + "_layers"] = values;
}

/// The largest group's share of the tokens, the entropy of the groups' sizes, and that of a token's
/// assignments, where there are any: keys have a class alone. Nothing without groups.
void add_groups(nlohmann::ordered_json& record, const std::vector<GroupStatistics>& layers) {
  if (layers.empty()) return;
  add_by_layer(record, "largest_group", layers, [](const auto& g) { return g.dominance(); });
  add_by_layer(record, "size_entropy", layers, [](const auto& g) { return g.size_entropy(); });
  if (layers.front().weighed > 0)
    add_by_layer(record, "assignment_entropy", layers,
                 [](const auto& g) { return g.entropy / static_cast<double>(g.weighed); });
}

constexpr std::string_view kBest = "best";
/// Whether write_result() leaves a file of that name.
bool is_of_result(const std::string& name) {
  return name.ends_with(".h5") || name.starts_with("adapter_");
}

/// What a run leaves in its folder. Of several processes the first has it.
class RunFolder {
 public:
  RunFolder(Session& session, const RunFolderOptions& options)
      : session_(session), out_(session.config().out) {
    make_folder_durably(out_);
    lock_.emplace(out_, "train.lock");
    const int keep = session.config().checkpoint_keep;
    checkpoints_.emplace(out_ / "checkpoints", keep);
    const auto latest = options.overwrite ? std::nullopt : checkpoints_->latest();
    if (latest && !options.resume)
      fail(
          "{}: holds a run already; add --resume to continue, --overwrite to start again, or "
          "choose another out=",
          out_.string());
    if (latest) newest = *latest;
    if (options.overwrite) {
      fs::remove_all(out_ / "checkpoints");
      checkpoints_.emplace(out_ / "checkpoints", keep);
    }
    sweep_orphans(out_);
  }

  /// Called after on_start: replaces an earlier run's files.
  void begin() {
    if (newest.empty()) fs::remove_all(out_ / kBest);
    write_file_durably(out_ / "config.yaml", std::string_view(dump_config(session_.config())));
    metrics_.emplace(out_ / "metrics.jsonl",
                     newest.empty() ? std::nullopt : std::optional(session_.steps()));
    if (session_.config().log == RunLog::tensorboard) events_.emplace(out_, session_.steps());
  }

  void add(const TrainingLine& line) {
    const StepReport& report = line.report;
    nlohmann::ordered_json record = {{"step", report.step},
                                     {"loss", report.result.loss},
                                     {"grad_norm", report.result.grad_norm},
                                     {"lr", report.result.lr},
                                     {"tokens_per_second", line.tokens_per_second}};
    if (session_.phase().steps != session_.config().steps)
      record["phase"] = session_.in_first_phase() ? 1 : 2;
    if (session_.ranks().count() > 1) {
      record["wait_seconds"] = report.result.waited;
      record["exchange_seconds"] = report.result.exchanged;
    }
    add_groups(record, report.groups);
    if (report.preferences) {
      record["rewards/accuracies"] = report.preferences->accuracy;
      record["rewards/margins"] = report.preferences->margin;
    }
    if (report.auxiliary_loss) record["auxiliary_loss"] = *report.auxiliary_loss;
    write(record);
  }

  void add_validation(std::int64_t step, double loss) {
    nlohmann::ordered_json record = {{"step", step}, {"valid_loss", loss}};
    if (const auto accuracy = session_.validated().accuracy)
      record["valid_accuracy"] = *accuracy;
    else
      record["valid_perplexity"] = std::exp(loss);
    write(record);
  }

  /// The result as it is now becomes the best one.
  void save_best() {
    DurableFolder folder(out_ / kBest, true, is_of_result);
    write_result(folder.temporary(), session_);
    folder.commit();
  }

  void save(const Validations& validations) {
    const std::int64_t steps = session_.steps();
    metrics_->sync();  // a run resumed from this checkpoint needs its records
    newest = checkpoints_->path_for(steps);
    write_checkpoint(newest, session_, validations);
    checkpoints_->publish(steps);
  }

  void finish(TrainingResult& result) {
    if (result.finished) {
      metrics_->sync();
      result.artifact = write_result(out_, session_).string();
      const fs::path best = out_ / kBest / fs::path(result.artifact).filename();
      if (session_.config().keeps_best() && fs::exists(best)) result.best = best.string();
    }
    result.checkpoint = newest.string();
    result.tokens_per_second = median_rate(read_metrics(out_ / "metrics.jsonl"));
  }

  fs::path newest;  // checkpoint; at first the one that the run continues

 private:
  void write(const nlohmann::ordered_json& record) {
    metrics_->write(record);
    if (events_) events_->write(record);
  }

  Session& session_;
  const fs::path out_;
  std::optional<FolderLock> lock_;
  std::optional<CheckpointFolder> checkpoints_;
  std::optional<MetricsFile> metrics_;
  std::optional<EventFile> events_;
};

/// The loop; `folder` may be null.
class TrainingLoop {
 public:
  TrainingLoop(Session& session, const TrainingCallbacks& callbacks, RunFolder* folder)
      : session_(session), config_(session.config()), callbacks_(callbacks), folder_(folder) {}

  /// From the checkpoint `from`, or from the beginning if that is empty.
  TrainingResult run(const fs::path& from = {}) {
    const bool resumed = !from.empty();
    if (resumed) result_.validations = restore_checkpoint(from, session_);
    if (callbacks_.on_start)
      callbacks_.on_start(session_, resumed ? std::optional(from) : std::nullopt);
    if (folder_) folder_->begin();
    if (is_over() && resumed) {
      result_.valid_loss = session_.validate(callbacks_.on_work);
    } else if (!resumed) {  // of no steps, too: keys are placed here
      validate();
      result_.validations.start = result_.valid_loss;
    }
    since_ = now();
    bool stop = false;
    while (!is_over() && !stop) stop = step();
    result_.step = session_.steps();
    result_.finished = is_over();
    result_.ended_early = is_over() && !session_.finished();
    result_.validated = session_.validated();
    result_.trainable = session_.count_trainable();
    result_.tokens =
        (result_.ended_early ? result_.step : config_.steps) * config_.tokens_per_step();
    result_.peak_bytes = static_cast<std::int64_t>(peak_resident_bytes());
    if (folder_) folder_->finish(result_);
    return result_;
  }

 private:
  /// True where the run is to stop.
  bool step() {
    const std::int64_t phase_before = session_.phase().first;
    const StepReport report = session_.step(callbacks_.on_work);
    if (session_.phase().first != phase_before && callbacks_.on_phase)
      callbacks_.on_phase(session_);
    if (callbacks_.on_step) callbacks_.on_step(session_, report);
    tokens_since_ += report.tokens;
    const std::int64_t step = report.step;
    const bool last = session_.finished();
    if (step % config_.log_every == 0 || last) log(report);
    if (last || (config_.eval_every > 0 && step % config_.eval_every == 0))
      untimed([&] { validate(); });
    const bool stop = should_stop();
    if (is_over() || stop || (config_.checkpoint_every > 0 && step % config_.checkpoint_every == 0))
      untimed([&] {
        check_finite(session_.optimiser().parameters(), step);
        if (folder_) folder_->save(result_.validations);
      });
    return stop;
  }

  bool is_over() const {
    return session_.finished() ||
           (config_.patience > 0 && result_.validations.without_gain >= config_.patience);
  }

  /// What one process wants all do: a signal may not have come to each of them.
  bool should_stop() {
    const bool wanted = callbacks_.should_stop && callbacks_.should_stop();
    if (session_.ranks().count() == 1) return wanted;
    const auto all = session_.ranks().gather(wanted ? "stop" : "");
    return std::ranges::any_of(all, [](const std::string& of_one) { return !of_one.empty(); });
  }

  void log(const StepReport& report) {
    const double seconds = now() - since_;
    const TrainingLine line{.report = report,
                            .tokens_per_second = static_cast<double>(tokens_since_) / seconds,
                            .collapsed = newly_collapsed(report)};
    if (folder_) folder_->add(line);
    if (callbacks_.on_line) callbacks_.on_line(session_, line);
    since_ = now();
    tokens_since_ = 0;
  }

  /// Layers whose largest group has passed warn_largest_group, each told once.
  std::vector<std::size_t> newly_collapsed(const StepReport& report) {
    std::vector<std::size_t> layers;
    if (config_.warn_largest_group == 0 || config_.focus.num_groups == 1) return layers;
    for (std::size_t layer = 0; layer < report.groups.size(); ++layer)
      if (report.groups[layer].dominance() > config_.warn_largest_group &&
          collapsed_.insert(layer).second)
        layers.push_back(layer);
    return layers;
  }

  void validate() {
    const std::int64_t step = session_.steps();
    result_.valid_loss = session_.validate(callbacks_.on_work);
    if (!result_.valid_loss) return;
    const double loss = *result_.valid_loss;
    if (!std::isfinite(loss))
      fail("step {}: the validation loss is {}; lower optim.lr, or check the weights of the base",
           step, loss);
    if (folder_) folder_->add_validation(step, loss);
    if (callbacks_.on_validation) callbacks_.on_validation(step, loss);
    const TrainingPhase& phase = session_.phase();
    const bool placed =
        session_.model().focus() == nullptr || session_.mode_at(step).kind != AttentionKind::dense;
    if (!placed || phase.first + phase.steps < config_.steps) return;  // not yet the result's kind
    Validations& all = result_.validations;
    if (all.best && loss >= *all.best) {
      ++all.without_gain;
      return;
    }
    all.best = loss;
    all.best_step = step;
    all.without_gain = 0;
    if (folder_ && config_.keeps_best()) folder_->save_best();
  }

  /// What no rate of training counts.
  template <class F>
  void untimed(F&& f) {
    const double start = now();
    f();
    since_ += now() - start;
  }

  Session& session_;
  const RunConfig& config_;
  const TrainingCallbacks& callbacks_;
  RunFolder* const folder_;
  TrainingResult result_;
  double since_ = 0;
  Index tokens_since_ = 0;
  std::set<std::size_t> collapsed_;  // layers already reported
};

}  // namespace

TrainingResult run_training(Session& session, const TrainingCallbacks& callbacks) {
  return TrainingLoop(session, callbacks, nullptr).run();
}

RunConfig divided_config(RunConfig config, int processes, const RunFolderOptions& options) {
  DataConfig& data = config.data;
  const Index windows = data.batch * data.gradient_accumulation_steps;
  const std::filesystem::path before = std::filesystem::path(config.out) / "config.yaml";
  if (options.resume && std::filesystem::exists(before)) {
    const DataConfig then =
        read_stored_run(read_config_file(before.string()), before.string()).data;
    if (then.batch * then.gradient_accumulation_steps != windows) return config;  // refused later
    data.batch = then.batch;
    data.gradient_accumulation_steps = then.gradient_accumulation_steps;
    return config;
  }
  if (windows < processes)
    fail(
        "data.batch {} and data.gradient_accumulation_steps {}: a step has {} windows, too few for "
        "{} processes; start at most {}",
        data.batch, data.gradient_accumulation_steps, windows, processes, windows);
  const int given = data.gradient_accumulation_steps;
  int enough = 0, even = 0;  // parts: the least number that suffices, that leaves nobody waiting
  for (Index more = 1; more <= data.batch; ++more) {
    if (data.batch % more != 0 || more * given < processes) continue;
    const int parts = static_cast<int>(more) * given;
    if (enough == 0) enough = parts;
    if (even == 0 && parts % processes == 0) even = parts;
  }
  data.gradient_accumulation_steps = even != 0 ? even : enough;
  data.batch = windows / data.gradient_accumulation_steps;
  return config;
}

TrainingResult run_training_in_folder(Session& session, const RunFolderOptions& options,
                                      const TrainingCallbacks& callbacks) {
  std::optional<RunFolder> folder;
  if (session.ranks().first()) folder.emplace(session, options);
  const std::string from = session.ranks().gather(folder ? folder->newest.string() : "").front();
  return TrainingLoop(session, callbacks, folder ? &*folder : nullptr).run(from);
}

}  // namespace focus
