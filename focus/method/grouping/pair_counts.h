#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "autograd/base/types.h"

namespace focus {

/// Pairs (i, j) of causal sequences, within the layer's own sliding window.
struct PairCounts {
  std::int64_t all = 0;       // what dense attention attends
  std::int64_t distant = 0;   // those beyond the local window: what the gate touches
  std::int64_t attended = 0;  // what hard attention attends; equals `all` for soft
  /// Multiply-adds that selecting them takes beside their own, in pairs of 2 head_dim each.
  std::int64_t selection_cost = 0;
  PairCounts& operator+=(const PairCounts& other);
};
/// One sequence; `membership` [seq_len], or empty for soft attention; the first tokens, `sinks` of
/// them, are in every group and distant to none. Exact, in time O(seq_len * different masks).
PairCounts count_pairs(std::span<const std::uint64_t> membership, Index seq_len, Index local_window,
                       Index sliding_window, Index sinks = 0);

// The groups of hard attention's tokens, a mask of bits each, and the first tokens of sequences,
// the sinks, which every token attends.

/// The mask of a token that shares a group with every token that has one.
constexpr std::uint64_t kEveryGroup = ~std::uint64_t{0};

/// Gives the first tokens of each sequence, as many as are sinks, a value. `starts` as
/// sequence_starts() has them.
template <class T>
void fill_sinks(std::span<const Index> starts, Index sinks, T value, std::vector<T>& of_tokens) {
  for (std::size_t i = 0; i + 1 < starts.size(); ++i)
    std::fill_n(of_tokens.begin() + starts[i], std::min(sinks, starts[i + 1] - starts[i]), value);
}

/// The masks [batch * seq_len] with each sequence's sinks in every group, so that every query
/// attends them.
std::vector<std::uint64_t> with_sinks(std::span<const std::uint64_t> membership, Index seq_len,
                                      Index sinks);

}  // namespace focus
