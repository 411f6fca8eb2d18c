#include "focus/attention/gate.h"

#include <algorithm>

namespace focus {

std::vector<std::uint64_t> with_sinks(std::vector<std::uint64_t> membership, Index seq_len,
                                      Index sinks) {
  const auto tokens = static_cast<Index>(membership.size());
  for (Index first = 0; sinks > 0 && first < tokens; first += seq_len)
    std::fill_n(membership.begin() + first, std::min({sinks, seq_len, tokens - first}),
                kEveryGroup);
  return membership;
}

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
