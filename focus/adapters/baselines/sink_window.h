#pragma once

#include "autograd/ops.h"
#include "focus/method/grouping/pair_counts.h"

namespace focus {

/// A local window and the first tokens.
struct SinkWindowConfig {
  Index local_window = 128;
  Index sinks = 4;

  template <class F>
  void visit(F&& f) {
    f("local_window", local_window, "pairs with i - j <= local_window are attended", {0, 1 << 27});
    f("sinks", sinks, "first tokens of a sequence (attention sinks), always attended",
      {0, 1 << 27});
  }
  void validate() const;
};

/// attention() in which pair (i, j) is attended only where i - j <= local_window or j < sinks; a
/// layer's own sliding window masks the sinks too. Shapes, gradients and soft-cap as attention().
/// Costs the pairs it attends. `pairs`, where given, receives them, added up over the sequences.
Variable sink_window_attention(const Variable& q, const Variable& k, const Variable& v,
                               const AttentionOptions& options, const SinkWindowConfig& config,
                               PairCounts* pairs = nullptr);

}  // namespace focus
