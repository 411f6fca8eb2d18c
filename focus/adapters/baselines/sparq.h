#pragma once

#include "autograd/ops.h"
#include "focus/method/grouping/pair_counts.h"

namespace focus {

/// SparQ attention (Ribar et al. 2024, arXiv 2312.04985): token selection at inference.
struct SparqConfig {
  Index tokens = 32;    // k
  Index rank = 32;      // r
  Index last_keys = 0;  // l; a share of the k keys (0: none is forced), so not a window's distance
  bool reallocate = true;

  template <class F>
  void visit(F&& f) {
    f("tokens", tokens, "k, keys that a query attends", {1, 1 << 27});
    f("rank", rank, "r, query components used to select keys; more than head_dim: all",
      {1, 1 << 16});
    f("last_keys", last_keys, "l, how many of the k keys are always the last ones", {0, 1 << 27});
    f("reallocate", reallocate, "give the weight of the unselected keys to the mean value");
  }
  void validate() const;
};

/// Their algorithm 1 at every position. Of a query the r numbers of largest magnitude (i1) give
/// approximate scores,
///   s^ = softmax(q_i1 . K_i1 / sqrt(head_dim |q_i1|_1 / |q|_1)),
/// of which the k largest (i2, the last l always among them) are attended exactly:
///   out = a softmax(q . K_i2) V_i2 + (1 - a) mean(V),  a = sum of s^ over i2,
/// with a = 1 where `reallocate` is false. options.scale is 1 / sqrt(head_dim); the mean is
/// over the values that the query could see. Heads that share keys select i1 by the sum of their
/// magnitudes and i2 by the sum of their s^. Soft-cap and sliding window are those of `options`.
/// Other than in the paper every token of a text is treated so, where theirs computes a prompt
/// densely and selects for what it generates, and the mean value serves grouped queries too, for
/// which they leave it out (`reallocate` false does).
/// With r = head_dim and k = seq_len it is attention(). Causal. Not differentiable: throws where a
/// gradient is wanted. Shapes as attention(); `pairs`, where given, receives what one head
/// attended, added up over the sequences. Time O(seq_len^2 head_dim), nothing [seq_len, seq_len].
Variable sparq_attention(const Variable& q, const Variable& k, const Variable& v,
                         const AttentionOptions& options, const SparqConfig& config,
                         PairCounts* pairs = nullptr);

}  // namespace focus
