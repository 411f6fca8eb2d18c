#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/compare/compare_run.h"
#include "focus/report/html_report.h"

// Answers that stand far before, as rows of a comparison.
namespace focus::app {

/// One object for each run, seed, question, attention and bucket of distances; "questions" is what
/// no other rows have. Of all distances together "from" and "to" are null. A failed run has none.
std::vector<nlohmann::ordered_json> recall_rows(const std::vector<RunOutcome>& outcomes);

/// For a terminal: a table for each question, means over seeds; `rows` are recall_rows().
std::string recall_tables(const std::vector<nlohmann::ordered_json>& rows);
/// The same on a page, with a chart by distance; nothing where there are no rows.
void add_recall(HtmlReport& page, const std::vector<nlohmann::ordered_json>& rows);

}  // namespace focus::app
