#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/variable.h"

namespace focus {

/// What the learning rate does after the warm-up.
enum class LrSchedule { cosine, linear, constant, wsd };
constexpr auto enum_names(LrSchedule) {
  return std::array<std::string_view, 4>{"cosine", "linear", "constant", "wsd"};
}

/// The optimiser and its schedule, as a config names them. Defaults suit a retrofit.
struct OptimConfig {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decay_1d = false;
  double clip_norm = 1.0;
  std::int64_t warmup_steps = 20;
  LrSchedule schedule = LrSchedule::cosine;
  double final_lr_ratio = 0.1;
  double lora_plus_ratio = 1;

  template <class F>
  void visit(F&& f) {
    f("lr", lr, "peak learning rate");
    f("beta1", beta1, "decay of AdamW's first moment");
    f("beta2", beta2, "decay of AdamW's second moment");
    f("eps", eps, "added to AdamW's denominator");
    f("weight_decay", weight_decay, "decoupled weight decay");
    f("decay_1d", decay_1d, "decay norms and biases too");
    f("clip_norm", clip_norm, "largest norm of the whole gradient; 0: no clipping");
    f("warmup_steps", warmup_steps, "steps of linear warm-up");
    f("schedule", schedule,
      "the learning rate after the warm-up: cosine or linear: down to the last step; constant; "
      "wsd: constant, then linear over the last fifth of the steps");
    f("final_lr_ratio", final_lr_ratio,
      "learning rate at the last step, as a fraction of lr (not constant)");
    f("lora_plus_ratio", lora_plus_ratio,
      "LoRA+ (arXiv 2402.12354): how many times lr a LoRA's matrices B learn with; the paper "
      "has 16");
  }

  /// Throws std::invalid_argument naming the key that is out of range.
  void validate() const;
};

/// Linear warm-up to lr, then the schedule: down to final_lr_ratio * lr at the last of `steps`, or
/// constant.
double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t steps);

/// A parameter under its name; `variable` shares value and gradient with the module's.
struct NamedParameter {
  std::string name;
  Variable variable;
  double lr_factor = 1;  // of the run's learning rate
};
using NamedParameters = std::vector<NamedParameter>;

/// Euclidean norm of all gradients together, summed in double in a fixed order.
double gradient_norm(const NamedParameters& parameters);
/// PyTorch's clip_grad_norm_: max_norm / (norm + 1e-6), at most 1. A max_norm of 0: no clipping.
double clip_factor(double norm, double max_norm);
/// The first parameter whose gradient holds a NaN or an infinity; or empty.
std::string first_nonfinite_gradient(const NamedParameters& parameters);

/// AdamW with decoupled decay (Loshchilov, Hutter 2019), in PyTorch's order and formula:
///     p *= 1 - lr * weight_decay
///     m  = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
///     p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
class AdamW {
 public:
  struct Moments {
    Tensor m, v;
  };

  /// The parameters' values are changed in place by step().
  AdamW(NamedParameters parameters, OptimConfig config);

  /// One step on the gradients times `gradient_scale`; they themselves stay as they are.
  void step(double lr, double gradient_scale = 1);
  /// Sets each parameter's lr_factor by its name.
  template <class F>
  void set_lr_factors(F&& factor_of) {
    for (NamedParameter& p : parameters_) p.lr_factor = factor_of(p.name);
  }
  void zero_grad();

  const NamedParameters& parameters() const { return parameters_; }
  /// One per parameter, in their order: what a checkpoint holds beside steps().
  std::vector<Moments>& moments() { return moments_; }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  NamedParameters parameters_;
  OptimConfig config_;
  std::vector<Moments> moments_;
  std::int64_t steps_ = 0;
};

}  // namespace focus
