#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/report/html_report.h"
#include "focus/training/compare/compare_plan.h"
#include "focus/training/compare/compare_rows.h"

namespace focus {

/// The rows of texts, those of a run's seeds as one; failed runs are left out.
std::vector<OverSeeds<TextRow>> text_rows_over_seeds(const std::vector<TextRow>& rows);

/// The tables for a terminal.
std::string compare_table(const ComparedRows& rows);

/// The page; `planned`: how many runs there are to be. Curves are read from the metrics files of
/// `outcomes`.
std::string compare_page(const CompareConfig& config, std::size_t planned, const ComparedRows& rows,
                         const std::vector<RunOutcome>& outcomes);

/// Charts of one run: loss, and by layer what groups came to. `folder` is the run's. Throws
/// std::runtime_error if its metrics.jsonl cannot be read or holds no records.
void add_run(HtmlReport& report, const std::string& folder);

}  // namespace focus
