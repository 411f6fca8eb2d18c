#pragma once

#include "focus/method/focus_model.h"
#include "focus/method/grouping/key_grouping.h"
#include "focus/method/grouping/token_grouping.h"
#include "tests/support/random.h"

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

/// A layer of random routing, and its settings.
inline FocusConfig routing_config(int groups, double temperature) {
  FocusConfig config;
  config.num_groups = groups;
  config.tokens().routing_dim = 4;
  config.tokens().temperature = temperature;
  return config;
}
inline FocusLayer routing_layer(const FocusConfig& config, Index width) {
  return {randn({width, config.tokens().routing_dim}, 11, 0.5),
          randn({config.num_groups, config.tokens().routing_dim}, 12),
          randn({config.num_groups}, 13)};
}

inline double largest_share(const Routing& routing) {
  GroupStatistics groups;
  groups.add(routing);
  return groups.dominance();
}

inline Index count_parameters(FocusModel& adapter) {
  Index count = 0;
  adapter.visit_parameters([&](const std::string&, Variable& p) { count += p.value().size(); });
  return count;
}

}  // namespace focus
