#include "focus/gated_attention.h"

#include <algorithm>

#include "autograd/check.h"
#include "autograd/parallel.h"
#include "focus/focus_rule.h"

namespace focus {

Variable gated_attention(const Variable& q, const Variable& k, const Variable& v, const Variable& g,
                         const AttentionOptions& options, const GateOptions& gate, Tensor* lse) {
  check(g.shape().rank() == 3 && q.shape().rank() == 4 && g.dim(0) == q.dim(0) &&
            g.dim(1) == q.dim(1),
        "gated_attention: g {} does not fit q {}", g.shape(), q.shape());
  check(gate.membership.empty(),
        "gated_attention: membership sets make it hard attention, which is sparse_attention's");
  if (!gate.gated) return attention(q, k, v, options, lse);
  const std::shared_ptr<const ScoreRule> rule = focus_rule(g.value(), gate, g.requires_grad());
  return attention_with_rule("gated_attention", q, k, v, g, options, rule, lse);
}

PairCounts& PairCounts::operator+=(const PairCounts& other) {
  all += other.all;
  distant += other.distant;
  attended += other.attended;
  return *this;
}

PairCounts count_pairs(std::span<const std::uint64_t> membership, Index seq_len, Index local_window,
                       Index sliding_window) {
  PairCounts counts;
  std::vector<std::int64_t> attended(static_cast<std::size_t>(seq_len), 0);
  for (Index i = 0; i < seq_len; ++i) {
    const Index first = sliding_window > 0 ? std::max<Index>(0, i - sliding_window + 1) : 0;
    counts.all += i + 1 - first;
    counts.distant += std::max<Index>(0, i - local_window - first);
  }
  if (membership.empty()) {
    counts.attended = counts.all;
    return counts;
  }
  parallel_chunks(seq_len, 64, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index first = sliding_window > 0 ? std::max<Index>(0, i - sliding_window + 1) : 0;
      const Index local = std::max(first, i - local_window);
      std::int64_t count = i + 1 - local;
      for (Index j = first; j < local; ++j)
        count += (membership[static_cast<std::size_t>(i)] &
                  membership[static_cast<std::size_t>(j)]) != 0;
      attended[static_cast<std::size_t>(i)] = count;
    }
  });
  for (const std::int64_t n : attended) counts.attended += n;
  return counts;
}

}  // namespace focus
