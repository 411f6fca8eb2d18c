#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "focus/method/summary/zones.h"

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

/// Which heads select groups by mass.
enum class SelectionPer {
  query_head,  // each query head for itself
  key_head     // the query heads that share a key head together, by the sum of their masses
};
constexpr auto enum_names(SelectionPer) {
  return std::array<std::string_view, 2>{"query_head", "key_head"};
}

/// The settings of summary attention.
struct SummarySettings {
  SummaryZones zones = {};        // its sliding window is the attention's
  Index num_selected_groups = 2;  // m; all groups: dense attention. 1 where selection is own
  GroupSelection selection = GroupSelection::mass;
  SelectionPer selection_per = SelectionPer::query_head;
  UnselectedGroups unselected_groups = UnselectedGroups::summary;
  /// a: how much of a group's width counts in its estimated mass, when groups are selected; 0: its
  /// mean score and its size alone.
  double width = 1;
  /// m of each query head of the layer, where they differ; empty: num_selected_groups. Only where
  /// query heads select.
  std::vector<Index> selected_by_head = {};

  bool reads_own_group() const { return selection == GroupSelection::own; }
  bool query_heads_select() const {
    return !reads_own_group() && selection_per == SelectionPer::query_head;
  }
  /// m of a query head.
  Index selected_of(Index query_head) const {
    return selected_by_head.empty() ? num_selected_groups
                                    : selected_by_head[static_cast<std::size_t>(query_head)];
  }
  Index most_selected() const {
    return selected_by_head.empty() ? num_selected_groups
                                    : *std::ranges::max_element(selected_by_head);
  }
  Index least_selected() const {
    return selected_by_head.empty() ? num_selected_groups
                                    : *std::ranges::min_element(selected_by_head);
  }
  /// Whether queries look at groups' masses.
  bool selects() const { return !reads_own_group() && most_selected() > 0; }
  /// Whether variances of keys are needed.
  bool uses_width() const { return width > 0 && selects(); }

  /// All but the window, which has a place of its own in a config.
  template <class F>
  void visit(F&& f) {
    f("num_selected_groups", num_selected_groups,
      "m, groups that a query reads exactly in summary attention", {0, kMaxKeyGroups});
    f("selection", selection,
      "mass: a query reads the num_selected_groups groups of largest estimated mass; own: the "
      "group of the query's token (groups of tokens)");
    f("selection_per", selection_per,
      "query_head: each query head selects groups separately; key_head: the query heads that share "
      "a key head select together");
    f("unselected_groups", unselected_groups,
      "summary: each unselected group is read as one token, its mean key and value; drop: not at "
      "all");
    f("block", zones.block,
      "queries that share the distant zone of summary attention, which ends local_window before "
      "them",
      {1, 1 << 20});
    f("sinks", zones.sinks,
      "first tokens (attention sinks) that summary attention always reads, in no group",
      {0, kMaxSinks});
    f("width", width,
      "a, for selection mass: a/2 times the variance of a group's scores is added to the logarithm "
      "of its estimated mass, which is exact for normal scores; 0: only mean score and size",
      {0, 1});
  }
};

}  // namespace focus
