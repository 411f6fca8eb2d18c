#pragma once

#include <cstdint>
#include <span>

#include "focus/method/summary/group_sums.h"
#include "focus/method/summary/summary_attention.h"

namespace focus {

/// The summary tokens of attention with summaries: of each query the groups that it does not read,
/// and the sinks that lie before its local zone. They come in sets, one for each distant zone; the
/// queries of a block share one.
struct SummaryTokens {
  const AttentionInputs& in;
  GroupSums& sums;
  const Tensor& summary_bias;  // [kv_heads, groups]
  const SummarySettings& settings() const { return sums.settings(); }

  /// Attention to local tokens, as the plan has them, sinks, and the summary tokens of
  /// the groups that are not read; those that are read are selected on the way, unless each query
  /// reads its own.  selected [m, batch, seq_len, heads that select]: where each query reads its
  /// own group, m = 1 and that is given. Adds to `pairs` [batch] what all query heads read of each
  /// sequence, the exact groups' tokens among them, and to `scored` [batch] the summary tokens that
  /// served to select alone.
  void forward(const AttentionPlan& local, AttentionResult& result,
               std::span<std::uint8_t> selected, std::span<std::int64_t> pairs,
               std::span<std::int64_t> scored) const;

  struct Gradients {
    AttentionGradients tokens;  // q, k and v: added to
    Tensor summary_bias;        // like summary_bias
    Tensor shares;  // of each token's share in each group [batch, seq_len, kv_heads, groups];
                    // undefined where not wanted
  };
  /// Gradients of out through the summary tokens, `result` being over everything.
  Gradients backward(const AttentionResult& result, const Tensor& d_out,
                     std::span<const std::uint8_t> selected, bool shares_wanted,
                     AttentionGradients onto) const;
};

}  // namespace focus
