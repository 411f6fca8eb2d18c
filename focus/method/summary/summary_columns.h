#pragma once

#include <cstdint>
#include <span>

#include "focus/method/summary/group_sums.h"
#include "focus/method/summary/summary_attention.h"

namespace focus {

/// The columns of attention with summaries: of each query the groups that it does not read, and
/// the sinks that lie before its near zone. They come in sets, one for each far zone; the queries
/// of a block share one.
class SummaryColumns {
 public:
  /// What is referred to must outlive it. beta [kv_heads, groups]
  SummaryColumns(const AttentionInputs& in, GroupSums& sums, const Tensor& beta,
                 const SummarySettings& options)
      : in_(in), sums_(sums), beta_(beta), options_(options) {}

  /// Attention to near tokens, as the plan has them, sinks, and the columns of
  /// the groups that are not read; those that are read are chosen on the way, unless each query
  /// reads its own.  chosen [m, batch, seq_len, heads that select]: where each query reads its own
  /// group, m = 1 and that is given. Adds to `pairs` [batch] what all query heads read of each
  /// sequence, the exact groups' tokens among them, and to `scored` [batch] the columns that served
  /// to choose alone.
  void forward(const AttentionPlan& near, AttentionResult& result, std::span<std::uint8_t> chosen,
               std::span<std::int64_t> pairs, std::span<std::int64_t> scored) const;

  struct Gradients {
    AttentionGradients tokens;  // q, k and v: added to
    Tensor beta;                // like beta
    Tensor classes;  // of each token's share in each group [batch, seq_len, kv_heads, groups];
                     // undefined where not wanted
  };
  /// Gradients of out through the columns, `result` being over everything.
  Gradients backward(const AttentionResult& result, const Tensor& d_out,
                     std::span<const std::uint8_t> chosen, bool classes_wanted,
                     AttentionGradients onto) const;

 private:
  const AttentionInputs& in_;
  GroupSums& sums_;
  const Tensor& beta_;
  const SummarySettings& options_;
};

}  // namespace focus
