#pragma once

#include "focus/evaluation/report/evaluation_file.h"
#include "focus/evaluation/report/html_report.h"

// The page of what `focus eval --json` wrote.
namespace focus {

/// Evaluations of one base on the same tokens and questions as one: its adapters side by side. The
/// others stay as they are.
std::vector<EvaluationFile> joined_evaluations(const std::vector<EvaluationFile>& evals);

/// Tables and charts. Throws std::runtime_error where `eval` has neither texts nor answers.
void add_evaluation(HtmlReport& report, const EvaluationFile& eval);

}  // namespace focus
