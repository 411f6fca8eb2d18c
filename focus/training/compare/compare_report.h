#pragma once

#include <string>
#include <vector>

#include "focus/training/compare/compare_plan.h"
#include "focus/training/compare/compare_rows.h"
#include "focus/training/compare/over_seeds.h"

namespace focus {

/// The rows of texts, those of a run's seeds as one; failed runs are left out.
std::vector<OverSeeds<TextRow>> text_rows_over_seeds(const std::vector<TextRow>& rows);

/// The tables for a terminal.
std::string compare_table(const ComparedRows& rows);

/// The page; `planned`: how many runs there are to be. Curves are read from the metrics files of
/// `outcomes`.
std::string compare_page(const CompareConfig& config, std::size_t planned, const ComparedRows& rows,
                         const std::vector<RunOutcome>& outcomes);

}  // namespace focus
