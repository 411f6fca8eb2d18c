#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/base/memory.h"
#include "autograd/base/profile.h"
#include "autograd/tensor.h"
#include "data/text/format.h"
#include "focus/training/training.h"

namespace focus {
namespace {

/// What a run that writes its checkpoints and its result has taken beyond one that does not, 1 to
/// 6 MiB: mostly HDF5's own.
constexpr std::int64_t kWritingBytes = 4 << 20;

std::int64_t signed_bytes(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

/// The phase of step `first`. `own_weights`: bytes of weights in the process's own memory.
DryRun::Phase dry_phase(Session& session, std::int64_t first, std::int64_t own_weights) {
  session.enter_phase(first);
  DryRun::Phase dry{.steps = session.phase().steps, .trainable = session.count_trainable()};
  dry.frozen = session.count_all() - dry.trainable;
  dry.gradient_bytes = dry.trainable * signed_bytes(sizeof(Real));
  dry.optimiser_bytes = 2 * dry.gradient_bytes;
  // The first step fills the pool, the second one is timed.
  session.step();
  if (dry.steps == 1) session.enter_phase(first);
  const double start = now();
  session.step();
  dry.seconds_per_step = now() - start;
  dry.tokens_per_second =
      static_cast<double>(session.config().tokens_per_step()) / dry.seconds_per_step;
  // The pool gives nothing back: what it holds now is what the steps have needed at most.
  const std::int64_t pool = signed_bytes(pool_stats().reserved);
  const std::int64_t named = own_weights + dry.gradient_bytes + dry.optimiser_bytes;
  dry.activation_bytes = std::max<std::int64_t>(0, pool - named);
  const std::int64_t resident = signed_bytes(anonymous_bytes());
  dry.program_bytes = std::max<std::int64_t>(0, resident - pool) + kWritingBytes;
  dry.memory_bytes = named + dry.activation_bytes + dry.program_bytes;
  return dry;
}

/// The seconds of a run's validations: before the first step, every eval_every, after the last one.
double seconds_to_validate(Session& session) {
  constexpr Index kTimed = 2;  // windows
  const Index windows = session.validation_windows(), timed = std::min(kTimed, windows);
  if (windows == 0) return 0;
  const RunConfig& config = session.config();
  const double start = now();
  session.validate({}, timed);
  const double one = (now() - start) / static_cast<double>(timed);
  std::int64_t times = 1;
  for (std::int64_t step = 0; step < config.steps; ++times)
    step = config.eval_every > 0 ? step + config.eval_every : config.steps;
  return one * static_cast<double>(windows * times);
}

/// Lines of parts and their sum, which is that of the numbers as printed.
class Parts {
 public:
  Parts(double unit, std::string (*text)(double)) : unit_(unit), text_(text) {}
  std::string add(double amount) {
    const double rounded = unit_ * std::round(amount / unit_);
    sum_ += rounded;
    return text_(rounded);
  }
  std::string sum() const { return text_(sum_); }

 private:
  double unit_, sum_ = 0;
  std::string (*text_)(double);
};

constexpr double kTenth = (1 << 20) / 10.0;  // of a MiB
std::string mebibytes(double bytes) { return fmt::format("{:.1f} MiB", bytes / (1 << 20)); }

}  // namespace

DryRun dry_run(Session& session) {
  const RunConfig& config = session.config();
  DryRun dry{.tokens = config.steps * config.tokens_per_step(),
             .train_tokens = session.data().train.num_tokens()};
  trim_pool();
  // Before the first step tensors hold weights and the optimiser's moments alone.
  const std::int64_t moments = 2 * session.count_trainable() * signed_bytes(sizeof(Real));
  const std::int64_t weights = signed_bytes(session.weight_bytes());
  const std::int64_t live = std::max<std::int64_t>(0, signed_bytes(pool_stats().live) - moments);
  const std::int64_t own_weights = std::min(weights, live);
  const double start = now();
  session.place_keys();
  const FocusModel* const focus = session.model().focus();
  if (focus != nullptr && focus->grouping().can_fit()) dry.fit_seconds = now() - start;
  for (std::int64_t first = 0; first < config.steps; first += *dry.phases.back().steps)
    dry.phases.push_back(dry_phase(session, first, own_weights));
  if (config.steps == 0) dry.phases.push_back({.steps = 0, .frozen = session.count_all()});
  dry.validation_seconds = seconds_to_validate(session);
  dry.seconds = dry.fit_seconds + dry.validation_seconds;
  for (DryRun::Phase& phase : dry.phases) {
    phase.weight_bytes = weights;
    phase.mapped_bytes = weights - own_weights;
    dry.seconds += phase.seconds_per_step * static_cast<double>(*phase.steps);
  }
  return dry;
}

std::string dry_run_text(const DryRun& run) {
  std::string text;
  std::int64_t first = 0;
  for (const DryRun::Phase& p : run.phases) {
    if (run.phases.size() > 1)
      text += fmt::format("phase {}, steps {} to {}\n", first == 0 ? 1 : 2, first + 1,
                          first + *p.steps);
    first += *p.steps;
    text +=
        fmt::format("trainable parameters  {}\nfrozen parameters     {}\n", p.trainable, p.frozen);
    Parts memory(kTenth, mebibytes);
    const auto line = [&](const char* what, std::int64_t bytes) {
      text += fmt::format("memory: {:<13} {}\n", what, memory.add(static_cast<double>(bytes)));
    };
    line("weights", p.weight_bytes - p.mapped_bytes);
    line("gradients", p.gradient_bytes);
    line("optimiser", p.optimiser_bytes);
    line("activations", p.activation_bytes);
    line("program", p.program_bytes);
    text += fmt::format("memory: {:<13} {}", "total", memory.sum());
    if (p.mapped_bytes > 0)
      text += fmt::format(", and weights of {} mapped from their file",
                          mebibytes(static_cast<double>(p.mapped_bytes)));
    text += "\n";
    if (*p.steps > 0)
      text += fmt::format("time per step         {:.3f} s, {} tok/s\n", p.seconds_per_step,
                          format_count(p.tokens_per_second));
  }
  text += fmt::format("tokens of the run     {} ({:.2f} epochs of {})\n", run.tokens,
                      static_cast<double>(run.tokens) / static_cast<double>(run.train_tokens),
                      run.train_tokens);
  Parts time(1, format_duration);
  if (run.fit_seconds > 0)
    text += fmt::format("time: placing keys    {}\n", time.add(run.fit_seconds));
  text += fmt::format("time: steps           {}\n",
                      time.add(run.seconds - run.fit_seconds - run.validation_seconds));
  text += fmt::format("time: validations     {}\n", time.add(run.validation_seconds));
  return text + fmt::format("time of the run       {}\n", time.sum());
}

}  // namespace focus
