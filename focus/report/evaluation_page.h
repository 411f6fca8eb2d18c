#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "focus/report/html_report.h"

// A page about what `focus eval --json` wrote.
namespace focus {

/// What an evaluation found, in sentences: what the local window costs, whether what stands far
/// before is found again, what is kept of the gain of distance. Empty where it says nothing of
/// these. Of several lengths: how each attention stands to dense at the first and at the last, and
/// the rest of the last.
std::vector<std::string> findings(const nlohmann::ordered_json& eval);

/// What a file holds.
struct ReadEvaluation {
  std::string where;
  nlohmann::ordered_json figures;
};

/// Evaluations of one base on the same tokens and questions as one: adapters of it side by side.
/// The others stay as they are.
std::vector<ReadEvaluation> joined_evaluations(const std::vector<ReadEvaluation>& evals);

/// Of the `lengths` of an evaluation: a row for each attention, a column for each length.
Table perplexity_by_length(const nlohmann::ordered_json& lengths);

/// Of an evaluation of one length: perplexity, pairs, right answers and far tokens side by side, as
/// far as they were measured.
Table overview(const nlohmann::ordered_json& eval);

/// Tables and charts; of several lengths the rest is that of the last. `where` names the file.
/// Throws std::runtime_error where it is none of an evaluation.
void add_evaluation(HtmlReport& report, const nlohmann::ordered_json& eval,
                    const std::string& where);

}  // namespace focus
