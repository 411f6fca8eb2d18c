#include "focus/evaluation/estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace focus {
namespace {

/// `deviations` is the sum of the squared distances from the mean.
double standard_error(double n, double deviations) {
  return n < 2 ? 0 : std::sqrt(std::max(0.0, deviations) / (n - 1) / n);
}

}  // namespace

Estimate estimate(std::span<const double> values) {
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double deviations = 0;
  for (const double value : values) deviations += (value - mean) * (value - mean);
  return {mean, standard_error(n, deviations)};
}

Estimate estimate_of_sums(std::int64_t count, double sum, double squares) {
  if (count == 0) return {};
  const auto n = static_cast<double>(count);
  const double mean = sum / n;
  return {mean, standard_error(n, squares - n * mean * mean)};
}

}  // namespace focus
