#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "autograd/base/types.h"

// The groups of hard attention's tokens as sets, a word of bits each, and the first tokens of
// sequences, the sinks, which every token attends.
namespace focus {

/// The set of a token that shares a group with every token that has one.
constexpr std::uint64_t kEveryGroup = ~std::uint64_t{0};

/// Gives the first tokens of each sequence, as many as are sinks, a value. `starts` as
/// sequence_starts() has them.
template <class T>
void fill_sinks(std::span<const Index> starts, Index sinks, T value, std::vector<T>& of_tokens) {
  for (std::size_t i = 0; i + 1 < starts.size(); ++i)
    std::fill_n(of_tokens.begin() + starts[i], std::min(sinks, starts[i + 1] - starts[i]), value);
}

/// The sets [batch * seq_len] with each sequence's sinks in every group, so that every query
/// attends them.
std::vector<std::uint64_t> with_sinks(std::span<const std::uint64_t> membership, Index seq_len,
                                      Index sinks);

}  // namespace focus
