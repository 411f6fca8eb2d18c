#include "focus/method/attention/gate.h"

namespace focus {

GateFactor::GateFactor(const GateOptions& options)
    : use_(options.gate == Gate::logit ? simd::GateUse::score : simd::GateUse::weight),
      start_(options.gate == Gate::logit ? Real(0) : static_cast<Real>(options.affinity_floor)),
      steepness_(static_cast<Real>(options.steepness)) {}

void GateFactor::finish(Real* affinities, Index n) const {
  if (use_ == simd::GateUse::score)
    simd::kernels().sigmoid_row(affinities, affinities, n, steepness_);
}

void GateFactor::backward(const Real* factors, Real* gradient, Index n) const {
  // logit: dA = lambda f (1 - f) df;  affinity: dA = df
  if (use_ == simd::GateUse::score)
    simd::kernels().sigmoid_row_backward(factors, gradient, n, steepness_);
}

}  // namespace focus
