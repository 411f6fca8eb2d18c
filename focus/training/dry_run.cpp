#include <fmt/format.h>

#include <algorithm>

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
  dry.memory_bytes = (resident > 0 ? resident : pool) + kWritingBytes;
  dry.program_bytes = std::max<std::int64_t>(0, dry.memory_bytes - pool);
  return dry;
}

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

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
  for (std::int64_t first = 0; first < config.steps; first += *dry.phases.back().steps)
    dry.phases.push_back(dry_phase(session, first, own_weights));
  if (config.steps == 0)  // keys are placed, which is not timed
    dry.phases.push_back({.steps = 0, .frozen = session.count_all()});
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
    text += fmt::format(
        "memory: weights       {}\nmemory: gradients     {}\nmemory: optimiser     {}\nmemory: "
        "activations   {}\nmemory: program       {}\nmemory: total         {}{}\n",
        bytes_text(p.weight_bytes - p.mapped_bytes), bytes_text(p.gradient_bytes),
        bytes_text(p.optimiser_bytes), bytes_text(p.activation_bytes), bytes_text(p.program_bytes),
        bytes_text(p.memory_bytes),
        p.mapped_bytes == 0 ? ""
                            : fmt::format(", and weights of {} mapped from their file",
                                          bytes_text(p.mapped_bytes)));
    if (*p.steps > 0)
      text += fmt::format("time per step         {:.3f} s, {} tok/s\n", p.seconds_per_step,
                          format_count(p.tokens_per_second));
  }
  return text +
         fmt::format("tokens of the run     {} ({:.2f} epochs of {})\ntime of the run       {}\n",
                     run.tokens,
                     static_cast<double>(run.tokens) / static_cast<double>(run.train_tokens),
                     run.train_tokens, format_duration(run.seconds));
}

}  // namespace focus
