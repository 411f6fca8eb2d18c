#include "focus/summary/head_budgets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/base/check.h"

namespace focus {
namespace {

/// Where a head's error falls with m as m^-a, budgets of least error in all are in proportion to
/// need^(1 / (1 + a)). Of 0.25, 0.3, 0.35, 0.5, 0.65 and 0.8 this exponent served best
/// (docs/results.md, "A real model").
double weight_of(double need) { return std::pow(need, 0.35); }

/// of_head(need) for each head of each layer.
template <class F>
std::vector<std::vector<Index>> for_heads(const std::vector<Tensor>& needs, F&& of_head) {
  std::vector<std::vector<Index>> all;
  for (const Tensor& of_layer : needs) {
    all.emplace_back();
    for (const Real need : of_layer.span())
      all.back().push_back(of_head(static_cast<double>(need)));
  }
  return all;
}

}  // namespace

std::vector<std::vector<Index>> head_budgets(const std::vector<Tensor>& needs, Index mean,
                                             Index most) {
  double total = 0;
  Index heads = 0;
  for (const Tensor& of_layer : needs)
    for (const Real need : of_layer.span()) {
      check(std::isfinite(need) && need >= 0, "a head's need is {}: wanted a number from 0 on",
            need);
      total += weight_of(static_cast<double>(need));
      ++heads;
    }
  if (mean <= 0 || mean >= most || total == 0)
    return for_heads(needs, [&](double) { return std::clamp<Index>(mean, 0, most); });
  const auto budget = [&](double factor, double need) {
    return std::clamp<Index>(std::llround(factor * weight_of(need)), 1, most);
  };
  const auto sum = [&](double factor) {
    Index all = 0;
    for (const Tensor& of_layer : needs)
      for (const Real need : of_layer.span()) all += budget(factor, static_cast<double>(need));
    return all;
  };
  // The largest factor whose budgets are not too many, by halving.
  double low = 0, high = 1;
  while (sum(high) <= mean * heads) high *= 2;
  for (int round = 0; round < 60; ++round) {
    const double middle = (low + high) / 2;
    (sum(middle) <= mean * heads ? low : high) = middle;
  }
  return for_heads(needs, [&](double need) { return budget(low, need); });
}

std::string budgets_text(const std::vector<Tensor>& needs, Index mean, Index most) {
  std::vector<Index> all;
  for (const std::vector<Index>& of_layer : head_budgets(needs, mean, most))
    all.insert(all.end(), of_layer.begin(), of_layer.end());
  if (all.empty()) return "none";
  const auto [least, largest] = std::ranges::minmax(all);
  std::string text =
      fmt::format("{} to {} of {} groups, {:.1f} in the mean", least, largest, most,
                  std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size()));
  if (const auto dense = std::ranges::count(all, most); dense > 0)
    text += fmt::format("; {} of {} heads select all", dense, all.size());
  return text;
}

}  // namespace focus
