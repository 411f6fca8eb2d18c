#pragma once

#include "autograd/ops.h"
#include "data/settings/config.h"
#include "focus/method/grouping/pair_counts.h"

namespace focus {

/// A local window alone: what is left of Longformer (Beltagy et al. 2020, arXiv 2004.05150, section
/// 3.1, "sliding window") in a causal decoder put onto pretrained weights, without global tokens.
struct WindowConfig {
  Index local_window = 128;  // pairs with i - j <= local_window are attended

  template <class F>
  void visit(F&& f) {
    f("local_window", local_window, "pairs with i - j <= local_window are attended", {0, 1 << 27});
  }
  void validate() const;
};

/// attention() in which pair (i, j) is attended only where i - j <= local_window; a layer's own
/// sliding window stays where it is narrower. Shapes, gradients and soft-cap as attention().
Variable window_attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionOptions& options, const WindowConfig& config);

/// Tokens seen, itself included, where both a local window and a layer's sliding window (0: none)
/// hold.
Index narrower_window(Index local_window, Index sliding_window);

/// Pairs of one causal sequence that window_attention() attends.
PairCounts count_window_pairs(Index seq_len, Index local_window, Index sliding_window);

}  // namespace focus
