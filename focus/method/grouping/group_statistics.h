#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "focus/method/grouping/routing.h"

namespace focus {

/// Appends the numbers that `x` visits, and those of what it visits, to a list: so counts go from
/// process to process.
template <class T>
void append_numbers(T& x, std::vector<double>& list) {
  if constexpr (std::is_arithmetic_v<T>) {
    list.push_back(static_cast<double>(x));
  } else if constexpr (requires { x.size(); }) {
    list.push_back(static_cast<double>(x.size()));
    for (auto& item : x) append_numbers(item, list);
  } else {
    x.visit([&](auto& member) { append_numbers(member, list); });
  }
}
/// Adds such numbers, the first of `list`, to those of `x`. Returns how many these were.
template <class T>
std::size_t add_numbers(std::span<const double> list, T& x) {
  std::size_t taken = 1;
  if constexpr (std::is_arithmetic_v<T>) {
    x += static_cast<T>(list[0]);
  } else if constexpr (requires { x.size(); }) {
    x.resize(list[0]);
    for (auto& item : x) taken += add_numbers(list.subspan(taken), item);
  } else {
    taken = 0;
    x.visit([&](auto& member) { taken += add_numbers(list.subspan(taken), member); });
  }
  return taken;
}

/// Pairs (i, j) of causal sequences, within the layer's own sliding window.
struct PairCounts {
  std::int64_t all = 0;       // what dense attention attends
  std::int64_t distant = 0;   // those beyond the local window: what the gate touches
  std::int64_t attended = 0;  // what hard attention attends; equals `all` for soft
  /// Multiply-adds that selecting them takes beside their own, in pairs of 2 head_dim each.
  std::int64_t selection_cost = 0;
  void visit(auto&& f) {
    f(all);
    f(distant);
    f(attended);
    f(selection_cost);
  }
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

/// What the routing of one layer did, summed over the tokens it saw.
struct GroupStatistics {
  std::vector<std::int64_t> sizes;  // tokens whose highest assignment is group g, head by head
  std::int64_t tokens = 0;
  std::int64_t weighed = 0;  // of them, those whose assignments were added too
  double entropy = 0;        // sum over these of -sum_k g log g, in nats
  double confidence = 0;     // sum over these of max_k g
  PairCounts pairs = {};

  /// Adds tokens by their group ids [tokens, heads] to `sizes` and `tokens`, the rest is left
  /// alone; each head has groups of its own.
  void add_sizes(std::span<const std::uint8_t> group_ids, Index heads, Index groups);
  /// Adds the tokens of a batch to everything but `pairs`.
  void add(const Routing& routing);
  void visit(auto&& f) {
    f(pairs);
    f(sizes);
    f(tokens);
    f(weighed);
    f(entropy);
    f(confidence);
  }
  /// The largest group's share; 1 / num_groups is perfect balance.
  double dominance() const;
  /// The entropy of the sizes as shares, in nats, mean over heads: log num_groups is perfect
  /// balance, 0 one group that has all.
  double size_entropy() const;
};

}  // namespace focus
