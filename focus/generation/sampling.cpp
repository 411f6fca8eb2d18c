#include "focus/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "autograd/base/check.h"

namespace focus {

void SamplingOptions::validate() const {
  check(temperature >= 0 && std::isfinite(temperature),
        "sampling: temperature must be 0 (greedy) or more, not {}", temperature);
  check(top_k >= 0, "sampling: top_k must be 0 (all) or more, not {}", top_k);
  check(repetition_penalty > 0 && std::isfinite(repetition_penalty),
        "sampling: repetition_penalty must be positive, not {}", repetition_penalty);
  check(top_p > 0 && top_p <= 1, "sampling: top_p must be in (0, 1], not {}", top_p);
}

void penalise_repetitions(std::span<Real> logits, std::span<const std::int32_t> text,
                          double penalty) {
  if (penalty == 1) return;
  const std::set<std::int32_t> ids(text.begin(), text.end());
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    Real& logit = logits[static_cast<std::size_t>(id)];
    logit = logit < 0 ? logit * static_cast<Real>(penalty) : logit / static_cast<Real>(penalty);
  }
}

std::int32_t sample(std::span<const Real> logits, const SamplingOptions& options, Rng& rng) {
  options.validate();
  check(!logits.empty(), "sampling: no logits");
  const auto highest = std::ranges::max_element(logits);
  check(std::isfinite(*highest), "sampling: a logit is {}", *highest);
  if (options.temperature == 0) return static_cast<std::int32_t>(highest - logits.begin());

  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto higher = [&](std::int32_t a, std::int32_t b) {
    const Real x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < ids.size()) {
    std::ranges::nth_element(ids, ids.begin() + options.top_k - 1, higher);
    ids.resize(static_cast<std::size_t>(options.top_k));
  }
  std::ranges::sort(ids, higher);
  std::vector<double> weights;
  double total = 0;
  for (const std::int32_t id : ids) {
    const double below = static_cast<double>(logits[static_cast<std::size_t>(id)]) - *highest;
    total += weights.emplace_back(std::exp(below / options.temperature));
  }
  if (options.top_p < 1) {
    std::size_t kept = 0;
    double sum = 0;
    while (kept < ids.size() && sum < options.top_p * total) sum += weights[kept++];
    weights.resize(kept);
    total = sum;
  }
  double left = rng.uniform() * total;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if ((left -= weights[i]) < 0) return ids[i];
  return ids[weights.size() - 1];  // rounding
}

}  // namespace focus
