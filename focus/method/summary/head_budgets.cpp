#include "focus/method/summary/head_budgets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/base/check.h"

namespace focus {
std::vector<std::vector<Index>> head_budgets(const std::vector<Tensor>& needs, Index mean,
                                             Index most) {
  // Where a head's error falls with m as m^-a, budgets of least error in all are in proportion to
  // need^(1 / (1 + a)). Of 0.25, 0.3, 0.35, 0.5, 0.65 and 0.8 this exponent served best
  // (docs/results.md, "A real model").
  constexpr double kExponent = 0.35;
  std::vector<double> weights;  // of all heads, layer after layer
  for (const Tensor& of_layer : needs)
    for (const Real need : of_layer.span()) {
      check(std::isfinite(need) && need >= 0, "the need of a head is {}: expected 0 or more", need);
      weights.push_back(std::pow(static_cast<double>(need), kExponent));
    }
  const auto budget = [&](double factor, double weight) {
    return std::llround(std::clamp(factor * weight, 1.0, static_cast<double>(most)));
  };
  std::vector<Index> all(weights.size(), std::clamp<Index>(mean, 0, most));
  if (mean > 0 && mean < most && std::ranges::any_of(weights, [](double w) { return w > 0; })) {
    const auto sum = [&](double factor) {
      Index total = 0;
      for (const double weight : weights) total += budget(factor, weight);
      return total;
    };
    // The largest factor whose budgets are not too many, by halving. It has no bound where heads
    // without need leave more groups than the others can take.
    const Index limit = mean * std::ssize(weights);
    double low = 0, high = 1;
    while (high < 1e30 && sum(high) <= limit) high *= 2;
    for (int round = 0; round < 60; ++round) {
      const double middle = (low + high) / 2;
      (sum(middle) <= limit ? low : high) = middle;
    }
    std::ranges::transform(weights, all.begin(), [&](double w) { return budget(low, w); });
  }
  std::vector<std::vector<Index>> by_layer;
  auto next = all.begin();
  for (const Tensor& of_layer : needs) {
    by_layer.emplace_back(next, next + of_layer.size());
    next += of_layer.size();
  }
  return by_layer;
}

std::string budgets_text(const std::vector<Tensor>& needs, Index mean, Index most) {
  std::vector<Index> all;
  for (const std::vector<Index>& of_layer : head_budgets(needs, mean, most))
    all.insert(all.end(), of_layer.begin(), of_layer.end());
  if (all.empty()) return "none";
  const auto [least, largest] = std::ranges::minmax(all);
  std::string text =
      fmt::format("{} to {} of {} groups, {:.1f} on average", least, largest, most,
                  std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size()));
  if (const auto dense = std::ranges::count(all, most); dense > 0)
    text += fmt::format("; {} of {} heads select all", dense, all.size());
  return text;
}

}  // namespace focus
