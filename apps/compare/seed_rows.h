#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/compare/compare_run.h"
#include "data/settings/recipe_values.h"

// What rows of all kinds of a comparison have alike.
namespace focus::app {

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

/// The first columns of a row of benchmarks or of recall, of a run that did not fail.
inline nlohmann::ordered_json columns_of_run(const RunOutcome& run) {
  return {{"run", run.name},
          {"seed", run.config.seed},
          {"hash", run.hash},
          {"method", value_text(run.config.method)},
          {"trainable_parameters", run.train.value("trainable", nlohmann::ordered_json())},
          {"train_tokens", run.train.value("tokens", nlohmann::ordered_json())}};
}

}  // namespace focus::app
