#pragma once

#include <cstdint>
#include <vector>

#include "autograd/ops.h"
#include "focus/attention/pair_counts.h"

// What attention over chosen keys has in common, one query at a time.
namespace focus {

/// Queries and keys of one key head in one sequence.
struct HeadView {
  const Real* q;  // the first of the heads that share the keys
  const Real *k, *v;
  Index q_stride, kv_stride;    // from a token to the next
  Index query_heads, head_dim;  // query_heads: those that share the keys

  const Real* query(Index token, Index head) const {
    return q + token * q_stride + head * head_dim;
  }
  const Real* key(Index token) const { return k + token * kv_stride; }
  const Real* value(Index token) const { return v + token * kv_stride; }
};
HeadView head_view(const Tensor& q, const Tensor& k, const Tensor& v, Index sequence,
                   Index kv_head);

/// The first key that token i sees.
inline Index first_visible(Index i, Index sliding_window) {
  return sliding_window > 0 && i >= sliding_window ? i - sliding_window + 1 : 0;
}

/// scale q.k, soft-capped.
Real score(const Real* q, const Real* k, Index head_dim, const AttentionOptions& options);
/// A soft-cap's c tanh(s / c); s itself where there is none.
Real capped(Real s, const AttentionOptions& options);

/// scores -> softmax, in place. Returns nothing that is left undefined: at least one is finite.
void softmax_in_place(std::vector<Real>& scores);

/// Throws where a gradient of q, k or v is wanted.
void refuse_gradients(const char* op, const Variable& q, const Variable& k, const Variable& v);

/// Pairs of `batch` sequences where heads attended `attended` pairs together.
PairCounts pairs_of_heads(Index batch, Index seq_len, Index heads, Index sliding_window,
                          std::int64_t attended);

}  // namespace focus
