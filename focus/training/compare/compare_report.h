#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "focus/training/compare/compare_rows.h"
#include "focus/training/compare/over_seeds.h"

namespace focus {

/// The rows of texts, those of a run's seeds as one; failed runs are left out.
std::vector<OverSeeds<TextRow>> text_rows_over_seeds(const std::vector<TextRow>& rows);

/// The tables for a terminal.
std::string compare_table(const ComparedRows& rows);

/// What a page says of a comparison's config.
struct ComparedConfig {
  std::string title = {};
  std::size_t runs = 0;  // that are planned
  std::vector<std::int64_t> seeds = {};
  std::int64_t far = 0;  // tokens of the short context; 0: no long-range tokens
};
/// The page. Curves are read from the metrics files of `outcomes`, which may be empty.
std::string compare_page(const ComparedConfig& config, const ComparedRows& rows,
                         const std::vector<RunOutcome>& outcomes);

/// What a run has learnt of the target and kept of the source, in nats per token: the logarithms of
/// the mean perplexities.
struct ForgettingPoint {
  std::string run, attention;
  double target = 0, source = 0;
  bool is_base = false;  // a retrofit's dense attention: the base as it was
};
/// One for each run and causal attention that has both splits.
std::vector<ForgettingPoint> forgetting_points(const std::vector<OverSeeds<TextRow>>& rows,
                                               const std::string& target,
                                               const std::string& source);

}  // namespace focus
