#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/report/html_report.h"

// A page about what `focus eval --json` wrote.
namespace focus {

/// What an evaluation found, in sentences: what the local window costs, whether what stands far
/// before is found again, what is kept of the gain of distance. Empty where it says nothing of
/// these.
std::vector<std::string> findings(const nlohmann::ordered_json& eval);

/// Tables and charts. `where` names the file. Throws std::runtime_error where it is none of an
/// evaluation.
void add_evaluation(HtmlReport& report, const nlohmann::ordered_json& eval,
                    const std::string& where);

}  // namespace focus
