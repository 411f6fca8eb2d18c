#pragma once

#include <functional>

#include "optim/adamw.h"
#include "optim/ranks.h"

namespace focus {

struct StepResult {
  double loss = 0;       // mean over the micro-batches, before the step
  double grad_norm = 0;  // of all gradients together, before clipping
  double lr = 0;
  // With several processes, seconds in which this one:
  double waited = 0;     // waited for those that were slower with their micro-batches
  double exchanged = 0;  // exchanged and added up gradients
};

/// Steps of a run with one optimiser and schedule.
struct TrainingPhase {
  OptimConfig optim;
  std::int64_t first = 0;  // the run's step that is this phase's first
  std::int64_t steps = 0;
};

/// One optimiser step over `micro_batches` of equal weight (gradient accumulation): loss(i) builds
/// the graph of micro-batch i. Each of several processes computes the micro-batches that it owns,
/// and all make the same step. `step` counts from the run's first one. Throws std::runtime_error
/// naming it, and the loss or the first tensor, where a number is not finite; no parameter has been
/// changed then.
StepResult training_step(AdamW& adamw, const TrainingPhase& phase, std::int64_t step,
                         int micro_batches, const std::function<Variable(int)>& loss,
                         Ranks& ranks = one_process());

}  // namespace focus
