#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/report/evaluation_file.h"
#include "focus/evaluation/report/html_report.h"

// The page of what `focus eval --json` wrote.
namespace focus {

/// What a file holds.
struct ReadEvaluation {
  std::string where;
  EvaluationFile figures;
};

/// Evaluations of one base on the same tokens and questions as one: its adapters side by side. The
/// others stay as they are.
std::vector<ReadEvaluation> joined_evaluations(const std::vector<ReadEvaluation>& evals);

/// Tables and charts. Throws std::runtime_error where `eval`, of the file `where`, has neither
/// texts nor answers.
void add_evaluation(HtmlReport& report, const EvaluationFile& eval, const std::string& where);

}  // namespace focus
