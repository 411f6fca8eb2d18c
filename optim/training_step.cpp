#include "optim/training_step.h"

#include <cmath>

#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/profile.h"

namespace focus {

StepResult training_step(AdamW& adamw, const TrainingPhase& phase, std::int64_t step,
                         int micro_batches, const std::function<Variable(int)>& loss) {
  StepResult result{.lr = learning_rate(phase.optim, step - phase.first, phase.steps)};
  adamw.zero_grad();
  for (int i = 0; i < micro_batches; ++i) {
    const Variable value = loss(i);
    const auto number = static_cast<double>(value.value()[0]);
    if (!std::isfinite(number))
      fail("step {}: the loss is {}; lower optim.lr, or look at the data of this step", step,
           number);
    result.loss += number / micro_batches;
    backward(micro_batches == 1 ? value : scale(value, Real(1) / static_cast<Real>(micro_batches)));
  }
  result.grad_norm = gradient_norm(adamw.parameters());
  if (!std::isfinite(result.grad_norm))
    fail(
        "step {}: the gradient of {} is not finite; lower optim.lr, or look at the data of this "
        "step",
        step, first_nonfinite_gradient(adamw.parameters()));
  adamw.step(result.lr, clip_factor(result.grad_norm, phase.optim.clip_norm));
  profile_mark("optimiser");
  return result;
}

}  // namespace focus
