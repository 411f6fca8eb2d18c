#pragma once

#include <map>
#include <numeric>
#include <vector>

#include "bench/cases.h"
#include "focus/method/grouping/group_statistics.h"

namespace focus::bench {

inline constexpr int kGroups = 8;  // K

/// g [1, seq_len, K]: positive, rows sum to 1.
inline Tensor random_assignments(Index seq_len) {
  Tensor g = random_tensor({1, seq_len, kGroups}, 4, 0.01, 1);
  for (Index t = 0; t < seq_len; ++t) {
    Real* row = g.data() + t * kGroups;
    const Real sum = std::accumulate(row, row + kGroups, Real(0));
    for (int k = 0; k < kGroups; ++k) row[k] /= sum;
  }
  return g;
}

/// Each token in top_k groups, drawn evenly: balanced groups, as Sinkhorn aims at.
inline std::vector<std::uint64_t> random_membership(Index seq_len, int top_k) {
  Rng rng(5);
  std::vector<std::uint64_t> sets(static_cast<std::size_t>(seq_len), 0);
  for (std::uint64_t& set : sets)
    for (int chosen = 0; chosen < top_k;) {
      const std::uint64_t group = std::uint64_t{1} << rng.below(kGroups);
      if ((set & group) != 0) continue;
      set |= group;
      ++chosen;
    }
  return sets;
}

/// The pairs of random_membership's sets, counted once a process: that takes seconds for long ones.
inline PairCounts counted_pairs(Index seq_len, int top_k, Index local_window) {
  static std::map<std::pair<Index, int>, PairCounts> known;
  const auto [place, is_new] = known.try_emplace({seq_len, top_k});
  if (is_new)
    place->second = count_pairs(random_membership(seq_len, top_k), seq_len, local_window, 0);
  return place->second;
}

}  // namespace focus::bench
