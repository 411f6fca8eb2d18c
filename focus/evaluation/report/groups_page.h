#pragma once

#include <string>

#include "focus/evaluation/statistics/groups_report.h"

namespace focus {

/// For a terminal: a line a grouping, and agreements.
std::string groups_table(const GroupsReport& report);
/// One page without scripts or anything from outside, of all that a report holds.
std::string groups_page(const GroupsReport& report);

}  // namespace focus
