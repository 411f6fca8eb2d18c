#pragma once

#include <cstdint>
#include <span>

#include "autograd/base/types.h"

namespace focus {

/// Pairs (i, j) of causal sequences, within the layer's own sliding window.
struct PairCounts {
  std::int64_t all = 0;       // what dense attention attends
  std::int64_t distant = 0;   // those beyond the local window: what the gate touches
  std::int64_t attended = 0;  // what hard attention attends; equals `all` for soft
  /// Multiply-adds that choosing them takes beside their own, in pairs of 2 head_dim each.
  std::int64_t choosing = 0;
  PairCounts& operator+=(const PairCounts& other);
};
/// One sequence; `membership` [seq_len], or empty for soft attention; the first tokens, `sinks` of
/// them, are in every group and distant to none. Exact, in time O(seq_len * different sets).
PairCounts count_pairs(std::span<const std::uint64_t> membership, Index seq_len, Index local_window,
                       Index sliding_window, Index sinks = 0);

}  // namespace focus
