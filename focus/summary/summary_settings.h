#pragma once

#include <array>
#include <string_view>

#include "focus/summary/zones.h"

namespace focus {

/// Groups of a head's keys at most, of which a token is in one: a byte.
constexpr int kMaxKeyGroups = 256;
/// First tokens that are always read, at most.
constexpr int kMaxSinks = 64;

/// How a query that does not select a group reads it.
enum class UnselectedGroups {
  summary,  // as one token: its mean key and mean value
  drop      // not at all
};
constexpr auto enum_names(UnselectedGroups) {
  return std::array<std::string_view, 2>{"summary", "drop"};
}

/// Which groups a query of summary attention reads exactly.
enum class GroupSelection {
  mass,  // those of largest estimated mass
  own    // the group that its own token is in; of groups of tokens alone
};
constexpr auto enum_names(GroupSelection) { return std::array<std::string_view, 2>{"mass", "own"}; }

/// The settings of summary attention.
struct SummarySettings {
  SummaryZones zones = {};        // its sliding window is the attention's
  Index num_selected_groups = 2;  // m; all groups: dense attention. 1 where selection is own
  GroupSelection selection = GroupSelection::mass;
  UnselectedGroups unselected_groups = UnselectedGroups::summary;
  /// a: how much of a group's width counts in its estimated mass, when groups are selected; 0: its
  /// mean score and its size alone.
  double width = 0;

  /// Whether variances of keys are needed.
  bool uses_width() const {
    return width > 0 && num_selected_groups > 0 && selection == GroupSelection::mass;
  }
  bool reads_own_group() const { return selection == GroupSelection::own; }

  /// All but the window, which has a place of its own in a config.
  template <class F>
  void visit(F&& f) {
    f("num_selected_groups", num_selected_groups,
      "m, groups that a query of summary attention reads exactly", {0, kMaxKeyGroups});
    f("selection", selection,
      "mass: a query reads the num_selected_groups groups of largest estimated mass; own: that of "
      "its own token (groups of tokens)");
    f("unselected_groups", unselected_groups,
      "summary: each other group is read as one token, its mean key and value; drop: not at all");
    f("block", zones.block,
      "queries that share the far zone of summary attention: it ends local_window before them",
      {1, 1 << 20});
    f("sinks", zones.sinks, "first tokens that summary attention always reads, in no group",
      {0, kMaxSinks});
    f("width", width,
      "a of selection mass: a/2 times the variance of a group's scores counts in its estimated "
      "mass, as scores near normal have it; 0: mean score and size only",
      {0, 1});
  }
};

}  // namespace focus
