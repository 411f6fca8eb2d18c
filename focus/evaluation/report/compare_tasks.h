#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/report/compare_rows.h"
#include "focus/evaluation/report/html_report.h"

// Benchmarks in a comparison.
namespace focus {

/// For a terminal: the scores side by side, and a table for each task.
std::string task_tables(const std::vector<TaskScoreRow>& rows);
/// The same on a page, with a chart for each task; nothing where there are no rows.
void add_tasks(HtmlReport& page, const std::vector<TaskScoreRow>& rows);

}  // namespace focus
