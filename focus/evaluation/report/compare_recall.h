#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/report/compare_rows.h"
#include "focus/evaluation/report/html_report.h"

// Answers that stand far before, in a comparison.
namespace focus {

/// For a terminal: a table for each question, means over seeds.
std::string recall_tables(const std::vector<RecallAnswerRow>& rows);
/// The same on a page, with a chart by distance; nothing where there are no rows.
void add_recall(HtmlReport& page, const std::vector<RecallAnswerRow>& rows);

}  // namespace focus
