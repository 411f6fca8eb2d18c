#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "focus/method/grouping/pair_counts.h"
#include "focus/method/grouping/routing.h"

namespace focus {

/// What the routing of one layer did, summed over the tokens it saw.
struct GroupStatistics {
  std::vector<std::int64_t> sizes;  // tokens whose highest assignment is group g, head by head
  std::int64_t tokens = 0;
  std::int64_t weighed = 0;  // of them, those whose assignments were added too
  double entropy = 0;        // sum over these of -sum_k g log g, in nats
  double confidence = 0;     // sum over these of max_k g
  PairCounts pairs = {};

  /// Adds the tokens of a batch to `sizes` and `tokens`, the rest is left alone.
  void add_sizes(const Routing& routing);
  /// The same of group ids [tokens, heads]; each head has groups of its own.
  void add_sizes(std::span<const std::uint8_t> group_ids, Index heads, Index groups);
  /// Adds them to everything but `pairs`.
  void add(const Routing& routing);
  /// All but `pairs` as numbers, appended to a list; and adds what such numbers say, the first of
  /// `list`. Returns how many these were.
  void append_to(std::vector<double>& list) const;
  std::size_t add(std::span<const double> list);
  /// The largest group's share; 1 / num_groups is perfect balance.
  double dominance() const;
  /// The entropy of the sizes as shares, in nats, mean over heads: log num_groups is perfect
  /// balance, 0 one group that has all.
  double size_entropy() const;
};

}  // namespace focus
