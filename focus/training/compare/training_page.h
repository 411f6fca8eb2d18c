#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/report/html_report.h"
#include "focus/training/compare/compare_rows.h"

// What training measured, as curves.
namespace focus {

/// Charts of one run: loss, and by layer what groups came to. `folder` is the run's. Throws
/// std::runtime_error if its metrics.jsonl cannot be read or holds no records.
void add_run(HtmlReport& report, const std::string& folder);
/// Charts of several runs, a line for each name: means over those of that name.
void add_mean_curves(HtmlReport& report, const std::vector<RunOutcome>& outcomes);

}  // namespace focus
