#pragma once

#include "autograd/ops.h"
#include "focus/method/grouping/pair_counts.h"

namespace focus {

struct QuestConfig {
  Index pages = 4;
  Index page_size = 16;
  Index local_window = 32;
  Index sinks = 4;

  template <class F>
  void visit(F&& f) {
    f("pages", pages, "number of distant pages that a query reads", {0, 1 << 27});
    f("page_size", page_size, "positions per page", {1, 1 << 27});
    f("local_window", local_window,
      "pairs with i - j <= local_window are always attended, back to the start of a page",
      {0, 1 << 27});
    f("sinks", sinks, "first tokens of a sequence (attention sinks), always attended",
      {0, 1 << 27});
  }
  void validate() const;
};

/// Shapes as attention(); not differentiable: throws where a gradient is wanted. `pairs`, where
/// given, receives what one head attended, added up over the sequences.
Variable quest_attention(const Variable& q, const Variable& k, const Variable& v,
                         const AttentionOptions& options, const QuestConfig& config,
                         PairCounts* pairs = nullptr);

}  // namespace focus
