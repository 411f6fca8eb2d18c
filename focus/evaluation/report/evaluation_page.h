#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/report/evaluation_file.h"
#include "focus/evaluation/report/html_report.h"

// A page about what `focus eval --json` wrote.
namespace focus {

/// What an evaluation found, in sentences: what the local window costs, whether what stands far
/// before is found again, what is kept of the gain of distance. Empty where it says nothing of
/// these. Of several lengths: how each attention stands to dense at the first and at the last, and
/// the rest of the last.
std::vector<std::string> findings(const EvaluationFile& eval);

/// What a file holds.
struct ReadEvaluation {
  std::string where;
  EvaluationFile figures;
};

/// Evaluations of one base on the same tokens and questions as one: adapters of it side by side.
/// The others stay as they are.
std::vector<ReadEvaluation> joined_evaluations(const std::vector<ReadEvaluation>& evals);

/// Of the `lengths` of an evaluation: a row for each attention, a column for each length.
Table perplexity_by_length(const std::vector<WindowEvaluation>& lengths);

/// Of an evaluation of texts, of several lengths of the last one: perplexity, pairs, right answers
/// and far tokens side by side, as far as they were measured.
Table overview(const EvaluationFile& eval);

/// Tables and charts; of several lengths the rest is that of the last. `where` names the file.
/// Throws std::runtime_error where it is of neither texts nor answers.
void add_evaluation(HtmlReport& report, const EvaluationFile& eval, const std::string& where);

}  // namespace focus
