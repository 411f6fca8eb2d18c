#pragma once

#include <string>
#include <vector>

#include "focus/method/focus_model.h"
#include "focus/method/grouping/key_grouping.h"
#include "focus/method/grouping/token_grouping.h"

namespace focus {

inline TokenGrouping& token_grouping_of(FocusModel& focus) {
  return dynamic_cast<TokenGrouping&>(focus.grouping());
}
inline std::vector<FocusLayer>& token_layers(FocusModel& focus) {
  return token_grouping_of(focus).layers();
}
inline std::vector<KeyGroups>& key_layers(FocusModel& focus) {
  return dynamic_cast<KeyGrouping&>(focus.grouping()).layers();
}

inline Index count_parameters(FocusModel& adapter) {
  Index count = 0;
  adapter.visit_parameters([&](const std::string&, Variable& p) { count += p.value().size(); });
  return count;
}

}  // namespace focus
