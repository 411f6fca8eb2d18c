#pragma once

#include <cstdint>
#include <vector>

#include "autograd/ops.h"
#include "focus/method/grouping/pair_counts.h"

namespace focus {

struct RandomGroupsConfig {
  int groups = 4;
  Index local_window = 32;
  Index sinks = 4;
  std::int64_t seed = 1;

  template <class F>
  void visit(F&& f) {
    f("groups", groups, "number of random groups", {1, 64});
    f("local_window", local_window, "pairs with i - j <= local_window are always attended",
      {0, 1 << 27});
    f("sinks", sinks, "first tokens of a sequence (attention sinks), always attended",
      {0, 1 << 27});
    f("seed", seed, "seed of the groups", {0, 1e18});
  }
  void validate() const;
};

/// The group of each position in a layer, the same for all heads and sequences.
std::vector<int> random_groups(const RandomGroupsConfig& config, Index layer, Index seq_len);

/// Sparse attention in which a distant pair is attended where both tokens are of one group, or the
/// key is a sink. Shapes, gradients and soft-cap as attention(). `pairs`, where given, receives
/// what is attended, added up over the sequences.
Variable random_groups_attention(const Variable& q, const Variable& k, const Variable& v,
                                 const AttentionOptions& options, const RandomGroupsConfig& config,
                                 Index layer, PairCounts* pairs = nullptr);

}  // namespace focus
