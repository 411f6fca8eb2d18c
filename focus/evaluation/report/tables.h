#pragma once

#include <span>
#include <string>
#include <vector>

#include "focus/evaluation/report/evaluation_file.h"
#include "focus/evaluation/report/html_report.h"

// The tables of an evaluation, for a terminal and for a page. Columns that no row has a value for
// are left out.
namespace focus {

/// Which attention, then what it came to. The first two columns are text.
Table row_table(std::span<const Row> rows);
Table far_table(const FarReport& report);
/// Correct answers: all, and by distance.
Table recall_table(const std::vector<RecallRow>& rows);

/// What the columns of row_table() and far_table() say.
std::string row_legend();
std::string far_legend(const FarReport& report);
inline constexpr const char* kRecallLegend =
    "correct: each token of the answer is the argmax after the text before it; columns are "
    "distances in tokens";

/// A table of rows and more columns, such as a comparison's: header and cells of a row.
std::vector<std::string> row_header();
std::vector<std::string> row_cells(const Row& row);
std::vector<std::string> far_header();
std::vector<std::string> far_cells(const FarFigures& figures);
/// Leaves out the columns that are "-" in each row.
void drop_empty_columns(Table& table);

}  // namespace focus
