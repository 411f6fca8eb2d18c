#pragma once

#include <cstdint>
#include <vector>

#include "autograd/ops.h"
#include "focus/method/grouping/group_ids.h"
#include "focus/method/summary_settings.h"

namespace focus {

/// What a forward pass selected.
struct SummaryReport {
  /// Groups that queries read [m, batch, seq_len, heads that select]: all query heads or all key
  /// heads. Of a head that reads fewer than m the first of them.
  std::vector<std::uint8_t> selected;
  /// Pairs read, tokens and summary tokens, by all query heads together [batch].
  std::vector<std::int64_t> pairs;
  /// Columns that are scored to select and not read, by all query heads together [batch].
  std::vector<std::int64_t> scored;
  Tensor lse;  // [batch, heads, seq_len]
};

/// Causal attention in which a group that a query does not read becomes one summary token. Of the
/// distant tokens (SummaryFields) of a query i, n_c are in group c, with mean key kb_c and mean
/// value vb_c;
///   est_c = scale q_i . kb_c + log n_c + beta_c          (only where n_c > 0)
/// It reads the tokens of the m groups whose estimated mass is largest: e^est over the sum of all
/// local tokens' and summary tokens' e^score, of its query head or summed over those that share the
/// key head (selection_per); of equal ones the first. With a width a > 0 the masses are those of
/// scores that are near normal in a group, est_c + a/2 scale^2 q_i^2 . var_c (the variance of each
/// dimension of its keys; under a soft-cap times its slope squared). Every other group is one
/// summary token of score est_c and value vb_c. One softmax goes over tokens and summary tokens. A
/// soft-cap acts on scale q . kb.
///
/// q [batch, seq_len, heads, head_dim]; k, v [batch, seq_len, kv_heads, head_dim]; summary_bias
/// [kv_heads, groups] -> like q. Differentiable in q, k, v, summary_bias and `group_ids.shares`;
/// the selection has no gradient. Nothing [seq_len, seq_len] is stored, and what a token receives
/// depends on nothing after it, nor on the number of threads. Throws std::invalid_argument where
/// shapes or options do not fit, and for dropout. `report`, where not null, is filled.
Variable summary_attention(const Variable& q, const Variable& k, const Variable& v,
                           const GroupIds& group_ids, const Variable& summary_bias,
                           const AttentionOptions& options, const SummarySettings& summary,
                           SummaryReport* report = nullptr);

}  // namespace focus
