#include "optim/training_step.h"

#include <cmath>

#include "autograd/base/check.h"
#include "autograd/base/clock.h"
#include "autograd/base/profile.h"
#include "autograd/ops.h"
#include "optim/gradient_sum.h"

namespace focus {

StepResult training_step(AdamW& adamw, const TrainingPhase& phase, std::int64_t step,
                         int micro_batches, const std::function<Variable(int)>& loss,
                         Ranks& ranks) {
  StepResult result{.lr = learning_rate(phase.optim, step - phase.first, phase.steps)};
  adamw.zero_grad();
  GradientSum sum(adamw.parameters(), micro_batches, ranks);
  std::vector<std::vector<double>> losses;
  bool finite = true;
  for (int i = 0; i < micro_batches; ++i) {
    if (!ranks.owns(i)) continue;
    losses.push_back({0});
    if (!finite) continue;  // all processes learn it below and fail
    const Variable value = loss(i);
    losses.back()[0] = static_cast<double>(value.value()[0]);
    finite = std::isfinite(losses.back()[0]);
    if (!finite) continue;
    backward(micro_batches == 1 ? value : scale(value, Real(1) / static_cast<Real>(micro_batches)));
    if (micro_batches > 1) sum.add();
  }
  const double computed = now();
  const auto all_losses = gather_parts(ranks, micro_batches, losses);
  const double met = now();
  for (const std::vector<double>& of_part : all_losses) {
    if (!std::isfinite(of_part[0]))
      fail("step {}: the loss is {}; lower optim.lr, or check the data of this step", step,
           of_part[0]);
    result.loss += of_part[0] / micro_batches;
  }
  if (micro_batches > 1) sum.finish();
  if (ranks.count() > 1) {
    result.waited = met - computed;
    result.exchanged = now() - met;
  }
  result.grad_norm = gradient_norm(adamw.parameters());
  if (!std::isfinite(result.grad_norm))
    fail(
        "step {}: the gradient of {} is not finite; lower optim.lr, or check the data of this step",
        step, first_nonfinite_gradient(adamw.parameters()));
  adamw.step(result.lr, clip_factor(result.grad_norm, phase.optim.clip_norm));
  profile_mark("optimiser");
  return result;
}

}  // namespace focus
