#pragma once

#include <cstdint>
#include <span>

namespace focus {

/// A mean, and its standard error: sample deviation / sqrt(n); 0 for fewer than two values.
struct Estimate {
  double value = 0, error = 0;

  void visit(auto&& f) {
    f("value", value);
    f("error", error);
  }
};
/// Of values that are at hand; of none it is 0.
Estimate estimate(std::span<const double> values);
/// Of `count` values that were added up, and their squares, as they went by.
Estimate estimate_of_sums(std::int64_t count, double sum, double squares);

}  // namespace focus
