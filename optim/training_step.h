#pragma once

#include <functional>

#include "optim/adamw.h"

namespace focus {

struct StepResult {
  double loss = 0;       // mean over the micro-batches, before the step
  double grad_norm = 0;  // of all gradients together, before clipping
  double lr = 0;
};

/// One optimiser step over `micro_batches` of equal weight (gradient accumulation): loss(i) builds
/// the graph of micro-batch i. Throws std::runtime_error naming the step, and the loss or the first
/// tensor, where a number is not finite; no parameter has been changed then.
StepResult training_step(AdamW& adamw, const OptimConfig& config, std::int64_t step,
                         std::int64_t steps, int micro_batches,
                         const std::function<Variable(int)>& loss);

}  // namespace focus
