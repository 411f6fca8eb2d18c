#include "focus/method/grouping/pair_counts.h"

#include <algorithm>
#include <vector>

#include "autograd/base/check.h"
#include "focus/method/grouping/group_sets.h"

namespace focus {

PairCounts& PairCounts::operator+=(const PairCounts& other) {
  all += other.all;
  distant += other.distant;
  attended += other.attended;
  choosing += other.choosing;
  return *this;
}

PairCounts count_pairs(std::span<const std::uint64_t> membership, Index seq_len, Index local_window,
                       Index sliding_window, Index sinks) {
  check(membership.empty() || static_cast<Index>(membership.size()) == seq_len,
        "count_pairs: {} membership sets for {} tokens", membership.size(), seq_len);
  PairCounts counts;
  const std::vector<std::uint64_t> sets = with_sinks(membership, seq_len, sinks);
  std::vector<std::uint64_t> classes = sets;
  std::ranges::sort(classes);
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  // Of each class the tokens that meet it among those behind the query's local window.
  std::vector<std::int64_t> met(classes.size(), 0);
  const auto add = [&](Index token, std::int64_t sign) {
    const std::uint64_t set = sets[static_cast<std::size_t>(token)];
    for (std::size_t c = 0; c < classes.size(); ++c)
      met[c] += (classes[c] & set) != 0 ? sign : std::int64_t{0};
  };
  Index entered = 0, left = 0;
  for (Index i = 0; i < seq_len; ++i) {
    const Index first = sliding_window > 0 ? std::max<Index>(0, i - sliding_window + 1) : 0;
    const Index local = std::max(first, i - local_window);
    counts.all += i + 1 - first;
    counts.distant += local - std::clamp(sinks, first, local);
    if (sets.empty()) continue;
    for (; entered < local; ++entered) add(entered, 1);
    for (; left < first; ++left) add(left, -1);
    const auto own = std::ranges::lower_bound(classes, sets[static_cast<std::size_t>(i)]);
    counts.attended += i + 1 - local + met[static_cast<std::size_t>(own - classes.begin())];
  }
  if (sets.empty()) counts.attended = counts.all;
  return counts;
}

}  // namespace focus
