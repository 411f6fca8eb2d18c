#pragma once

#include <algorithm>

#include "autograd/tensor.h"

namespace focus {

/// What a query sees in attention with summary columns, by positions in a sequence: near tokens,
/// which it reads as always, and far ones, which it reads by groups.
///   near(i) = { j <= i : j >= B floor(i / B) - w  or  j < s },   far(i): the others that it sees
/// The far zone is the same for all queries of a block: a cache moves B tokens at a time from the
/// ones to the others.
struct SummaryZones {
  Index window = 32;         // w: positions before a query's block that are near
  Index block = 32;          // B: queries that share a far zone
  Index sinks = 1;           // s: first tokens, always near and in no group's sums
  Index sliding_window = 0;  // keys a token sees, itself included; 0: all before it

  /// far(i) = [far_begin, far_end); where the second is not above the first there is none.
  Index far_begin(Index i) const {
    return sliding_window > 0 ? std::max(sinks, i - sliding_window + 1) : sinks;
  }
  Index far_end(Index i) const { return std::max(sinks, i / block * block - window); }
  /// The near tokens but the sinks are [near_begin, i]; the sinks are among them where the far zone
  /// has not begun yet.
  Index near_begin(Index i) const {
    const Index of_block = far_end(i) == sinks ? 0 : far_end(i);
    return sliding_window > 0 ? std::max(of_block, i - sliding_window + 1) : of_block;
  }
  /// Sinks that lie before the near zone and are seen: [first_sink, sinks).
  Index first_sink(Index i) const {
    if (far_end(i) == sinks) return sinks;
    return sliding_window > 0 ? std::clamp<Index>(i - sliding_window + 1, 0, sinks) : 0;
  }
};

}  // namespace focus
