#pragma once

#include <cmath>
#include <span>

namespace focus {

/// Values of a run's seeds: their mean, and their standard deviation by n - 1, 0 of one seed. Not
/// for none.
struct Spread {
  double mean = 0, deviation = 0;
};
inline Spread spread_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (n - 1)) : 0};
}

}  // namespace focus
