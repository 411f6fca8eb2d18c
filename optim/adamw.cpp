#include "optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/simd/kernels.h"

namespace focus {

void OptimConfig::validate() const {
  check(lr > 0, "optim.lr must be positive, not {}", lr);
  check(beta1 >= 0 && beta1 < 1, "optim.beta1 must be in [0, 1), not {}", beta1);
  check(beta2 >= 0 && beta2 < 1, "optim.beta2 must be in [0, 1), not {}", beta2);
  check(eps > 0, "optim.eps must be positive, not {}", eps);
  check(weight_decay >= 0, "optim.weight_decay must not be negative, not {}", weight_decay);
  check(clip_norm >= 0, "optim.clip_norm must not be negative, not {}", clip_norm);
  check(warmup_steps >= 0, "optim.warmup_steps must not be negative, not {}", warmup_steps);
  check(final_lr_ratio >= 0 && final_lr_ratio <= 1,
        "optim.final_lr_ratio must be in [0, 1], not {}", final_lr_ratio);
  check(lora_plus_ratio > 0, "optim.lora_plus_ratio must be positive, not {}", lora_plus_ratio);
}

double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t steps) {
  if (step < config.warmup_steps)
    return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  if (config.schedule == LrSchedule::constant) return config.lr;
  std::int64_t first = config.warmup_steps;  // of those in which the rate falls
  if (config.schedule == LrSchedule::wsd) first = std::max(first, steps - 1 - steps / 5);
  const double t = static_cast<double>(step - first) /
                   static_cast<double>(std::max<std::int64_t>(1, steps - 1 - first));
  const double done = std::clamp(t, 0.0, 1.0);
  const double left = config.schedule == LrSchedule::cosine
                          ? 0.5 * (1 + std::cos(std::numbers::pi * done))
                          : 1 - done;
  return config.lr * (config.final_lr_ratio + (1 - config.final_lr_ratio) * left);
}

double gradient_norm(const NamedParameters& parameters) {
  double total = 0;
  for (const NamedParameter& p : parameters) {
    const Tensor& grad = p.variable.grad();
    if (!grad.defined()) continue;
    const Index size = grad.size();
    std::vector<double> sums((size + kElementChunk - 1) / kElementChunk);
    parallel_chunks(size, kElementChunk, [&](Index begin, Index end) {
      sums[begin / kElementChunk] =
          simd::kernels().elementwise.sum_of_squares(grad.data() + begin, end - begin);
    });
    for (const double sum : sums) total += sum;
  }
  return std::sqrt(total);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

std::string first_nonfinite_gradient(const NamedParameters& parameters) {
  for (const NamedParameter& p : parameters) {
    if (!p.variable.grad().defined()) continue;
    for (const Real g : p.variable.grad().span())
      if (!std::isfinite(g)) return p.name;
  }
  return {};
}

AdamW::AdamW(NamedParameters parameters, OptimConfig config)
    : parameters_(std::move(parameters)), config_(config) {
  for (const NamedParameter& p : parameters_)
    moments_.push_back({Tensor::zeros(p.variable.shape()), Tensor::zeros(p.variable.shape())});
}

void AdamW::zero_grad() {
  for (NamedParameter& p : parameters_) p.variable.zero_grad();
}

void AdamW::step(double lr, double gradient_scale) {
  ++steps_;
  const double t = static_cast<double>(steps_);
  simd::AdamWFactors factors{
      .gradient_scale = static_cast<Real>(gradient_scale),
      .beta1 = static_cast<Real>(config_.beta1),
      .one_minus_beta1 = static_cast<Real>(1 - config_.beta1),
      .beta2 = static_cast<Real>(config_.beta2),
      .one_minus_beta2 = static_cast<Real>(1 - config_.beta2),
      .keep = 1,
      .step_size = 0,
      .root_correction = static_cast<Real>(std::sqrt(1 - std::pow(config_.beta2, t))),
      .eps = static_cast<Real>(config_.eps)};
  for (std::size_t n = 0; n < parameters_.size(); ++n) {
    Variable& p = parameters_[n].variable;
    if (!p.grad().defined()) continue;
    const bool decays = p.shape().rank() > 1 || config_.decay_1d;
    const double own_lr = lr * parameters_[n].lr_factor;
    factors.keep = static_cast<Real>(decays ? 1 - own_lr * config_.weight_decay : 1.0);
    factors.step_size = static_cast<Real>(own_lr / (1 - std::pow(config_.beta1, t)));
    Real* value = p.mutable_value().data();
    Real* m = moments_[n].m.data();
    Real* v = moments_[n].v.data();
    const Real* g = p.grad().data();
    parallel_chunks(p.value().size(), kElementChunk, [=](Index begin, Index end) {
      simd::kernels().elementwise.adamw(value + begin, m + begin, v + begin, g + begin, end - begin,
                                        factors);
    });
  }
}

}  // namespace focus
