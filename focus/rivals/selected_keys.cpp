#include "focus/rivals/selected_keys.h"

#include <algorithm>
#include <cmath>

#include "autograd/check.h"
#include "autograd/soft_cap.h"

namespace focus {

HeadView head_view(const Tensor& q, const Tensor& k, const Tensor& v, Index sequence,
                   Index kv_head) {
  const Index seq_len = q.dim(1), heads = q.dim(2), head_dim = q.dim(3), kv_heads = k.dim(2);
  const Index query_heads = heads / kv_heads;
  const Index key = (sequence * seq_len * kv_heads + kv_head) * head_dim;
  return {.q = q.data() + (sequence * seq_len * heads + kv_head * query_heads) * head_dim,
          .k = k.data() + key,
          .v = v.data() + key,
          .q_stride = heads * head_dim,
          .kv_stride = kv_heads * head_dim,
          .query_heads = query_heads,
          .head_dim = head_dim};
}

Real capped(Real s, const AttentionOptions& options) { return soft_cap(s, options.softcap); }

Real score(const Real* q, const Real* k, Index head_dim, const AttentionOptions& options) {
  Real dot = 0;
  for (Index d = 0; d < head_dim; ++d) dot += q[d] * k[d];
  return capped(options.scale * dot, options);
}

void softmax_in_place(std::vector<Real>& scores) {
  const Real max = *std::ranges::max_element(scores);
  double sum = 0;
  for (Real& s : scores) {
    s = std::exp(s - max);
    sum += static_cast<double>(s);
  }
  for (Real& s : scores) s = static_cast<Real>(static_cast<double>(s) / sum);
}

void refuse_gradients(const char* op, const Variable& q, const Variable& k, const Variable& v) {
  check(!grad_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()),
        "{}: selects tokens at inference and has no gradient; train with another attention", op);
}

PairCounts pairs_of_heads(Index batch, Index seq_len, Index heads, Index sliding_window,
                          std::int64_t attended) {
  PairCounts counts;
  for (Index s = 0; s < batch; ++s) counts += count_pairs({}, seq_len, seq_len, sliding_window);
  counts.attended = (attended + heads / 2) / std::max<Index>(1, heads);
  return counts;
}

}  // namespace focus
