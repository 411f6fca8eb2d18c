#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/tensor.h"
#include "data/settings/config_values.h"

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
constexpr auto enum_names(UnselectedGroups) { return enum_list("summary", "drop"); }

/// Which groups a query of summary attention reads exactly.
enum class GroupSelection {
  mass,  // those of largest estimated mass
  own    // the group that its own token is in; of groups of tokens alone
};
constexpr auto enum_names(GroupSelection) { return enum_list("mass", "own"); }

/// Which heads select groups by mass.
enum class SelectionPer {
  query_head,  // each query head for itself
  key_head     // the query heads that share a key head together, by the sum of their masses
};
constexpr auto enum_names(SelectionPer) { return enum_list("query_head", "key_head"); }

/// How many groups each query head selects, of groups that are fitted.
enum class HeadBudgets {
  measured,  // in proportion to the head's need, num_selected_groups on average
  equal      // num_selected_groups
};
constexpr auto enum_names(HeadBudgets) { return enum_list("measured", "equal"); }

/// A setting's default where each has a value; where each is optional, none.
template <template <class> class Of, class T>
constexpr Of<T> or_nothing(T value) {
  if constexpr (std::is_same_v<Of<T>, T>) return value;
  return {};
}

/// The settings of summary attention: all of them, or those that an attention spec gives
/// (Of = std::optional). Positions are divided into zones:
///   local(i) = { j <= i : j >= B floor(i / B) - w  or  j < s },  the rest of what i sees: distant
/// A query reads local tokens exactly and distant ones by groups. The distant zone is the same for
/// all queries of a block: a cache moves B tokens at a time from the one to the other.
template <template <class> class Of>
struct SummaryFields {
  Of<Index> local_window = or_nothing<Of>(Index{32});        // w
  Of<Index> block = or_nothing<Of>(Index{32});               // B
  Of<Index> sinks = or_nothing<Of>(Index{1});                // s: always local, in no group
  Of<Index> num_selected_groups = or_nothing<Of>(Index{2});  // m; all: dense; 1 for selection own
  Of<GroupSelection> selection = or_nothing<Of>(GroupSelection::mass);
  Of<SelectionPer> selection_per = or_nothing<Of>(SelectionPer::query_head);
  Of<UnselectedGroups> unselected_groups = or_nothing<Of>(UnselectedGroups::summary);
  /// a: how much of a group's width counts in its estimated mass, when groups are selected; 0: its
  /// mean score and its size alone.
  Of<double> width = or_nothing<Of>(1.0);
  Of<HeadBudgets> head_budgets = or_nothing<Of>(HeadBudgets::measured);
  // A layer that runs has: keys that a token sees, itself included (0: all before it); m of each
  // query head where they differ and query heads select, else empty; of each query head how much of
  // a group's width, from 0 to 1, counts in its summary token's own score (empty: none).
  Index sliding_window = 0;
  std::vector<Index> selected_by_head = {};
  std::vector<Real> summary_width = {};
  // A config has: m of training, step after step, in turn; none: as in use.
  std::vector<int> train_num_selected_groups = {};

  bool operator==(const SummaryFields&) const = default;

  /// Calls f(key, help, range, setting...) for each setting of some of these, side by side.
  template <class F, class... Fields>
  static void visit_each(F&& f, Fields&... of) {
    f("num_selected_groups", "m, groups that a query reads exactly in summary attention",
      Range{0, kMaxKeyGroups}, of.num_selected_groups...);
    f("selection",
      "mass: a query reads the num_selected_groups groups of largest estimated mass; own: the "
      "group of the query's token (groups of tokens)",
      Range{}, of.selection...);
    f("selection_per",
      "query_head: each query head selects groups separately; key_head: the query heads that share "
      "a key head select together",
      Range{}, of.selection_per...);
    f("unselected_groups",
      "summary: each unselected group is read as one token, its mean key and value; drop: not at "
      "all",
      Range{}, of.unselected_groups...);
    f("block",
      "queries that share the distant zone of summary attention, which ends local_window before "
      "them",
      Range{1, 1 << 20}, of.block...);
    f("sinks", "first tokens (attention sinks) that summary attention always reads, in no group",
      Range{0, kMaxSinks}, of.sinks...);
    f("width",
      "a, for selection mass: a/2 times the variance of a group's scores is added to the logarithm "
      "of its estimated mass, which is exact for normal scores; 0: only mean score and size",
      Range{0, 1}, of.width...);
    f("local_window", nullptr, Range{0, 1 << 27}, of.local_window...);
    f("head_budgets", nullptr, Range{}, of.head_budgets...);
  }

  /// The section focus.summary; the settings without a help have another place in a config.
  template <class F>
  void visit(F&& f) {
    visit_each(
        [&f](const char* key, const char* help, Range range, auto& value) {
          if (help != nullptr) f(key, value, help, range);
        },
        *this);
    f("train_num_selected_groups", train_num_selected_groups,
      "m in summary training, taken in turn by its steps, such as [2, 6]; num_groups or "
      "more: dense attention; empty: num_selected_groups",
      {0, kMaxKeyGroups});
  }

  /// Throws std::invalid_argument, `prefix` before the key, where a number is out of range.
  void validate(std::string_view prefix) const {
    const auto in_range = [&](const char* key, const char*, Range range, const auto& value) {
      if constexpr (!std::is_enum_v<std::remove_cvref_t<decltype(value)>>)
        check(value >= range.min && value <= range.max, "{}{} must be from {} to {}, not {}",
              prefix, key, range.min, range.max, value);
    };
    visit_each(in_range, *this);
  }
  bool reads_own_group() const { return selection == GroupSelection::own; }
  bool query_heads_select() const {
    return !reads_own_group() && selection_per == SelectionPer::query_head;
  }
  /// m of a query head.
  Index selected_of(Index query_head) const {
    return selected_by_head.empty() ? num_selected_groups : selected_by_head[query_head];
  }
  Index most_selected() const {
    return selected_by_head.empty() ? num_selected_groups : std::ranges::max(selected_by_head);
  }
  Index least_selected() const {
    return selected_by_head.empty() ? num_selected_groups : std::ranges::min(selected_by_head);
  }
  /// Whether queries look at groups' masses.
  bool selects() const { return !reads_own_group() && most_selected() > 0; }
  /// Whether variances of keys are needed.
  bool uses_width() const { return (width > 0 && selects()) || !summary_width.empty(); }
  Real summary_width_of(Index query_head) const {
    return summary_width.empty() ? Real(0) : summary_width[query_head];
  }

  /// distant(i) = [distant_begin, distant_end); where the second is not above the first, nothing.
  Index distant_begin(Index i) const {
    return sliding_window > 0 ? std::max(sinks, i - sliding_window + 1) : sinks;
  }
  Index distant_end(Index i) const { return std::max(sinks, i / block * block - local_window); }
  /// The local tokens but the sinks are [local_begin, i]; the sinks are among them where the
  /// distant zone has not begun yet.
  Index local_begin(Index i) const {
    const Index of_block = distant_end(i) == sinks ? 0 : distant_end(i);
    return sliding_window > 0 ? std::max(of_block, i - sliding_window + 1) : of_block;
  }
  /// Sinks that lie before the other local tokens and are seen: [first_sink, sinks).
  Index first_sink(Index i) const {
    if (distant_end(i) == sinks) return sinks;
    return sliding_window > 0 ? std::clamp<Index>(i - sliding_window + 1, 0, sinks) : 0;
  }
};

using SummarySettings = SummaryFields<std::type_identity_t>;

inline SummarySettings with_sliding_window(SummarySettings settings, Index sliding_window) {
  settings.sliding_window = sliding_window;
  return settings;
}

}  // namespace focus
