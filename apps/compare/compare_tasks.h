#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/compare/compare_run.h"
#include "focus/report/html_report.h"
#include "focus/scores/task_scores.h"

// Benchmarks as rows of a comparison.
namespace focus::app {

/// One object for each run, seed, task and attention; "task" is what rows of texts do not have. A
/// failed run has none.
std::vector<nlohmann::ordered_json> task_rows(const std::vector<RunOutcome>& outcomes);

/// Over the seeds of a run: means of the figures and of their standard errors over items.
struct TaskGroup {
  std::string run, task, attention, routing;
  std::size_t seeds = 0;
  double deviation = 0;  // of acc over seeds, by n - 1
  double pairs_touched = 0, items_inside = 0;
  std::int64_t items = 0, cut = 0, local_window = -1;  // -1: no local window
  std::map<std::string, Estimate> figures = {};        // by their columns; those that there are
};
/// In the order of the rows.
std::vector<TaskGroup> group_task_rows(const std::vector<nlohmann::ordered_json>& rows);

/// For a terminal: the scores side by side, and a table for each task.
std::string task_tables(const std::vector<nlohmann::ordered_json>& rows);
/// The same on a page, with a chart for each task; nothing where there are no rows.
void add_tasks(HtmlReport& page, const std::vector<nlohmann::ordered_json>& rows);

}  // namespace focus::app
