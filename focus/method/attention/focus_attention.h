#pragma once

#include "autograd/ops.h"
#include "focus/method/attention/gate.h"

namespace focus {

/// Soft attention: causal attention in which the scores of distant pairs pass the gate of
/// g_i . g_j, the same for all heads. Order on a score: scale, soft-cap, gate.
/// g [batch, seq_len, num_groups]; the rest as attention(). Differentiable in q, k, v and g. Throws
/// where the gate has membership masks: hard attention is sparse_attention's.
Variable gated_attention(const Variable& q, const Variable& k, const Variable& v, const Variable& g,
                         const AttentionOptions& options, const GateOptions& gate);

/// Hard attention, exact for any k, at the cost of the pairs it attends. It splits the mask into
/// two disjoint parts (the paper's section on decomposition, made right for k > 1):
///   1. the last local_window tokens and the token itself, in the tokens' order;
///   2. distant pairs that share a group: tokens with the same mask of groups form a bucket, sorted
///      together; a bucket attends to each bucket whose mask meets its own, up to a position that
///      is the local window behind.
/// What a query sees of a tile is one run of keys in both, so no pair is ever asked for its mask;
/// the second part is merged onto the first by log-sum-exp. `gate.membership` must be mask; with
/// gate.gated the affinity of attended distant pairs stays in their scores and carries a gradient
/// to g. Where the buckets are so small that their tiles would cost more than all pairs do (short
/// sequences, k > 1), it computes all pairs with a mask instead; not with the logit gate kept,
/// which multiplies the scores. Shapes and order on a score as gated_attention(). Differentiable in
/// q, k, v and g.
Variable sparse_attention(const Variable& q, const Variable& k, const Variable& v,
                          const Variable& g, const AttentionOptions& options,
                          const GateOptions& gate);

/// Attention to the pairs of two plans that have none in common, in one softmax: a local band and
/// distant pairs. `rule`, where not null, acts on the distant ones: it was made of g's rows in the
/// order of the distant plan's own. Shapes as attention(). Differentiable in q, k, v and, with a
/// rule, g.
Variable attention_by_plans(const char* op, const Variable& q, const Variable& k, const Variable& v,
                            const Variable& g, const AttentionOptions& options, AttentionPlan local,
                            AttentionPlan distant, std::shared_ptr<const ScoreRule> rule);

}  // namespace focus
