#include "focus/method/attention/focus_attention.h"

#include <algorithm>
#include <bit>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/profile.h"
#include "focus/method/attention/group_plans.h"
#include "focus/method/documents.h"
#include "focus/method/grouping/group_statistics.h"

namespace focus {
namespace {

/// The assignments in the plan's order: to[i] = from[rows[i]].
Tensor gather(const Tensor& from, std::span<const Index> rows) {
  Tensor to(from.shape());
  const auto count = std::ssize(rows);
  const Index width = count == 0 ? 0 : from.size() / count;
  parallel_chunks(count, rows_per_chunk(width), [&, out = to.data()](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      std::copy_n(from.data() + rows[i] * width, width, out + i * width);
  });
  return to;
}

/// Back again: to[rows[i]] = from[i].
Tensor scatter(const Tensor& from, std::span<const Index> rows) {
  Tensor to(from.shape());
  const Index width = from.cols();
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(from.data() + static_cast<Index>(i) * width, width, to.data() + rows[i] * width);
  return to;
}

/// A plan's rows without the copies.
std::span<const Index> own_tokens(const AttentionPlan& plan) {
  return std::span(plan.tokens).first(plan.own_rows());
}

/// Key heads whose q, k, v, packed k and v and output are about kCacheBytes.
Index heads_at_a_time(const AttentionInputs& in) {
  constexpr Index kCacheBytes = 12 << 20;
  const Index kv_heads = std::max<Index>(1, in.k.dim(2));
  const Index bytes = (2 * in.q.size() + 4 * in.k.size()) / kv_heads * Index{sizeof(Real)};
  return std::clamp<Index>(kCacheBytes / std::max<Index>(1, bytes), 1, kv_heads);
}

}  // namespace

Variable gated_attention(const Variable& q, const Variable& k, const Variable& v, const Variable& g,
                         const AttentionOptions& options, const GateOptions& gate) {
  check(g.shape().rank() == 3 && q.shape().rank() == 4 && g.dim(0) == q.dim(0) &&
            g.dim(1) == q.dim(1),
        "gated_attention: g {} does not fit q {}", g.shape(), q.shape());
  check(gate.membership.empty(),
        "gated_attention: got membership sets; hard attention is sparse_attention");
  if (!gate.gated) return attention(q, k, v, options);
  const std::shared_ptr<const ScoreRule> rule =
      focus_rule(g.value(), gate, g.requires_grad(), documents_of(options));
  return attention_with_rule("gated_attention", q, k, v, g, options, rule);
}

Variable sparse_attention(const Variable& q, const Variable& k, const Variable& v,
                          const Variable& g, const AttentionOptions& options,
                          const GateOptions& gate) {
  check_attention_inputs({q.value(), k.value(), v.value(), options});
  check(!gate.membership.empty() || q.value().size() == 0,
        "sparse_attention: no membership sets; soft attention is gated_attention");
  check(g.shape().rank() == 3 && g.dim(0) == q.dim(0) && g.dim(1) == q.dim(1),
        "sparse_attention: g {} does not fit q {}", g.shape(), q.shape());
  const Index batch = q.dim(0), seq_len = q.dim(1);
  const Index local = gate.local_window + 1, window = options.sliding_window;
  const bool gated = gate.gated, g_wanted = gated && g.requires_grad();
  const Variable g_input = g_wanted ? g : Variable(g.value());
  // Decided by the first token: the form must not depend on later ones.
  const Index top_k = gate.membership.empty() ? 0 : std::popcount(gate.membership.front());
  GateOptions of_pairs = gate;
  of_pairs.membership = with_sinks(gate.membership, seq_len, gate.sinks);
  const PairForm form =
      cheapest_form(seq_len, g.dim(2), top_k, window, local, !gated || gate.gate == Gate::affinity);
  if (form == PairForm::masked)
    return attention_with_rule("sparse_attention", q, k, v, g_input, options,
                               focus_rule(g.value(), of_pairs, g_wanted));
  AttentionPlan buckets = shared_groups_plan(of_pairs.membership, batch, seq_len, window, local,
                                             form == PairForm::lists);
  profile_mark("sort");
  std::shared_ptr<const ScoreRule> rule;
  if (gated) {
    of_pairs.membership.clear();  // the plan's pairs are those that share a group
    rule = focus_rule(gather(g.value(), own_tokens(buckets)), of_pairs, g_wanted);
  }
  return attention_by_plans(
      "sparse_attention", q, k, v, g_input, options,
      causal_plan(batch, seq_len, std::min(seq_len, window > 0 ? std::min(window, local) : local)),
      std::move(buckets), rule);
}

Variable attention_by_plans(const char* op, const Variable& q, const Variable& k, const Variable& v,
                            const Variable& g, const AttentionOptions& options, AttentionPlan local,
                            AttentionPlan distant, std::shared_ptr<const ScoreRule> rule) {
  const AttentionInputs inputs{q.value(), k.value(), v.value(), options};
  check_attention_inputs(inputs);
  // Some heads at a time, so that what the first part leaves is still in the cache for the second.
  AttentionResult result{Tensor(q.shape()), Tensor({q.dim(0), q.dim(2), q.dim(1)})};
  const Index kv_heads = k.dim(2), step = heads_at_a_time(inputs);
  for (Index first = 0; first < kv_heads; first += step) {
    const HeadRange heads{first, std::min(step, kv_heads - first)};
    tiled_attention(inputs, local, nullptr, Into::assign, heads, result);
    profile_mark("local band");
    tiled_attention(inputs, distant, rule.get(), Into::add, heads, result);
    profile_mark("grouped attention");
  }
  auto backward = [=, local = std::move(local), distant = std::move(distant), shape = g.shape()](
                      const Tensor& d_out, Grads grads) {
    const WantedGradients wanted{grads[0].wanted(), grads[1].wanted(), grads[2].wanted()};
    AttentionGradients d;
    if (wanted.any()) d = tiled_attention_backward(inputs, local, result, d_out, nullptr, wanted);
    d = tiled_attention_backward(inputs, distant, result, d_out, rule.get(), wanted, d);
    if (wanted.q) grads[0].add(d.q);
    if (wanted.k) grads[1].add(d.k);
    if (wanted.v) grads[2].add(d.v);
    if (grads[3].wanted()) grads[3].add(scatter(d.rule.reshape(shape), own_tokens(distant)));
  };
  return Variable::from_op(op, result.out, {q, k, v, g}, std::move(backward));
}

}  // namespace focus
