#include "focus/training/training.h"

#include <cmath>
#include <numeric>
#include <set>

#include "autograd/base/check.h"
#include "autograd/base/clock.h"
#include "autograd/base/memory.h"
#include "autograd/tensor.h"
#include "data/files/durable_file.h"
#include "data/files/folder_lock.h"
#include "data/settings/config.h"
#include "data/tensors/checkpoint_folder.h"
#include "focus/training/checkpoint.h"
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

/// What a run leaves in its folder. Of several processes the first writes; the others follow it.
class RunFolder {
 public:
  RunFolder(Session& session, const RunFolderOptions& options)
      : session_(session),
        writes_(session.ranks().first()),
        out_(session.config().out),
        options_(options) {
    if (writes_) open();
    const std::string from = session.ranks().gather(resumed ? resumed->string() : "").front();
    if (writes_ || from.empty()) return;
    resumed = from;
    valid_start = restore_checkpoint(*resumed, session);
  }

  /// Called after on_start: replaces an earlier run's files.
  void begin() {
    if (!writes_) return;
    write_file_durably(out_ / "config.yaml", std::string_view(dump_config(session_.config())));
    metrics_.emplace(out_ / "metrics.jsonl",
                     resumed ? std::optional(session_.steps()) : std::nullopt);
  }

  void add(const TrainingLine& line) {
    if (!writes_) return;
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
    if (report.auxiliary_loss) record["auxiliary_loss"] = *report.auxiliary_loss;
    metrics_->write(record);
  }

  void add_validation(std::int64_t step, double loss) {
    if (!writes_) return;
    metrics_->write({{"step", step}, {"valid_loss", loss}, {"valid_perplexity", std::exp(loss)}});
  }

  void save(std::optional<double> start) {
    if (!writes_) return;
    const std::int64_t steps = session_.steps();
    metrics_->sync();  // a run resumed from this checkpoint needs its records
    newest = checkpoints_->path_for(steps);
    write_checkpoint(newest, session_, start);
    checkpoints_->publish(steps);
  }

  fs::path write_artifact() {
    if (!writes_) return {};
    metrics_->sync();
    return write_result(out_, session_);
  }

  std::optional<fs::path> resumed;    // the checkpoint that the run continues
  std::optional<double> valid_start;  // as it says
  fs::path newest;                    // checkpoint

 private:
  void open() {
    make_folder_durably(out_);
    lock_.emplace(out_, "train.lock");
    const int keep = session_.config().checkpoint_keep;
    checkpoints_.emplace(out_ / "checkpoints", keep);
    const auto latest = options_.overwrite ? std::nullopt : checkpoints_->latest();
    if (latest && !options_.resume)
      fail(
          "{}: holds a run already; add --resume to continue, --overwrite to start again, or "
          "choose another out=",
          out_.string());
    if (latest) {
      valid_start = restore_checkpoint(*latest, session_);
      resumed = latest;
      newest = *latest;
    } else if (options_.overwrite) {
      fs::remove_all(out_ / "checkpoints");
      checkpoints_.emplace(out_ / "checkpoints", keep);
    }
    sweep_orphans(out_);
  }

  Session& session_;
  const bool writes_;
  fs::path out_;
  RunFolderOptions options_;
  std::optional<FolderLock> lock_;
  std::optional<CheckpointFolder> checkpoints_;
  std::optional<MetricsFile> metrics_;
};

/// The loop; `folder` may be null.
class TrainingLoop {
 public:
  TrainingLoop(Session& session, const TrainingCallbacks& callbacks, RunFolder* folder)
      : session_(session), config_(session.config()), callbacks_(callbacks), folder_(folder) {}

  TrainingResult run() {
    const bool resumed = folder_ && folder_->resumed;
    if (callbacks_.on_start)
      callbacks_.on_start(session_, resumed ? folder_->resumed : std::nullopt);
    if (folder_) folder_->begin();
    if (session_.finished() && resumed) {
      result_.valid_loss = session_.validate(callbacks_.on_work);
    } else if (!resumed) {  // of no steps, too: keys are placed here
      validate();
      result_.valid_loss_start = result_.valid_loss;
    }
    if (resumed) result_.valid_loss_start = folder_->valid_start;
    since_ = now();
    since_step_ = session_.steps();
    bool stop = false;
    while (!session_.finished() && !stop) stop = step();
    result_.steps = session_.steps();
    result_.finished = session_.finished();
    if (folder_) {
      result_.checkpoint = folder_->newest;
      if (result_.finished) result_.artifact = folder_->write_artifact();
    }
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
    if (last || stop || (config_.checkpoint_every > 0 && step % config_.checkpoint_every == 0))
      untimed([&] {
        check_finite(session_.optimiser().parameters(), step);
        if (folder_) folder_->save(result_.valid_loss_start);
      });
    return stop;
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
                            .seconds_left = static_cast<double>(config_.steps - report.step) *
                                            seconds /
                                            static_cast<double>(report.step - since_step_),
                            .collapsed = newly_collapsed(report)};
    if (folder_) folder_->add(line);
    if (callbacks_.on_line) callbacks_.on_line(session_, line);
    since_ = now();
    since_step_ = report.step;
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
  std::int64_t since_step_ = 0;
  Index tokens_since_ = 0;
  std::set<std::size_t> collapsed_;  // layers already reported
};

/// What a run that writes its checkpoints and its result has taken beyond one that does not, 1 to
/// 6 MiB: mostly HDF5's own.
constexpr std::size_t kWritingBytes = std::size_t{4} << 20;

/// `own_weights`: bytes of weights in the process's own memory.
DryPhase dry_phase(Session& session, std::int64_t first, std::size_t own_weights) {
  session.enter_phase(first);
  const std::int64_t steps = session.phase().steps;
  DryPhase dry{.steps = steps, .trainable = session.count_trainable()};
  dry.frozen = session.count_all() - dry.trainable;
  dry.gradient_bytes = static_cast<std::size_t>(dry.trainable) * sizeof(Real);
  dry.optimiser_bytes = 2 * dry.gradient_bytes;
  // The first step fills the pool, the second one is timed.
  session.step();
  if (steps == 1) session.enter_phase(first);
  const double start = now();
  session.step();
  dry.seconds_per_step = now() - start;
  // The pool gives nothing back: what it holds now is what the steps have needed at most.
  const std::size_t pool = pool_stats().reserved;
  const std::size_t named = own_weights + dry.gradient_bytes + dry.optimiser_bytes;
  dry.activation_bytes = pool - std::min(pool, named);
  const std::size_t resident = anonymous_bytes();
  dry.memory_bytes = (resident > 0 ? resident : pool) + kWritingBytes;
  dry.program_bytes = dry.memory_bytes - std::min(dry.memory_bytes, pool);
  return dry;
}

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
  RunFolder folder(session, options);
  return TrainingLoop(session, callbacks, &folder).run();
}

double DryRun::seconds() const {
  double seconds = 0;
  for (const DryPhase& phase : phases)
    seconds += phase.seconds_per_step * static_cast<double>(phase.steps);
  return seconds;
}

double DryRun::tokens_per_step() const {
  std::int64_t steps = 0;
  for (const DryPhase& phase : phases) steps += phase.steps;
  return steps == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(steps);
}

DryRun dry_run(Session& session) {
  const RunConfig& config = session.config();
  DryRun dry{.phases = {},
             .weight_bytes = session.weight_bytes(),
             .mapped_bytes = 0,
             .tokens = config.steps * config.tokens_per_step(),
             .train_tokens = session.data().train.num_tokens()};
  trim_pool();
  // Before the first step tensors hold weights and the optimiser's moments alone.
  const std::size_t moments =
      2 * static_cast<std::size_t>(session.count_trainable()) * sizeof(Real);
  const std::size_t live = pool_stats().live;
  const std::size_t own_weights = std::min(dry.weight_bytes, live - std::min(live, moments));
  dry.mapped_bytes = dry.weight_bytes - own_weights;
  for (std::int64_t first = 0; first < config.steps; first += dry.phases.back().steps)
    dry.phases.push_back(dry_phase(session, first, own_weights));
  if (config.steps == 0) {  // keys are placed, which is not timed
    dry.phases.emplace_back();
    dry.phases.back().frozen = session.count_all();
  }
  return dry;
}

}  // namespace focus
