#pragma once

#include "autograd/tiled_attention.h"
#include "focus/gated_attention.h"

namespace focus {

/// Hard attention, exact for any k, at the cost of the pairs it attends. It splits the mask into
/// two disjoint parts (the paper's section on decomposition, made right for k > 1):
///   1. pairs that share a group: tokens with the same set of groups form a class; a class attends
///      to each class whose set meets its own, up to its own position;
///   2. the last local_window tokens whose set does not meet the token's own.
/// Both run as tiles of the attention engine, the second merged onto the first by log-sum-exp.
/// The same values as gated_attention() with the same `gate`, whose membership must be set; with
/// gate.gated the affinity of attended distant pairs stays in their scores and carries a gradient
/// to g. Differentiable in q, k, v and g.
Variable sparse_attention(const Variable& q, const Variable& k, const Variable& v,
                          const Variable& g, const AttentionOptions& options, GateOptions gate,
                          Tensor* lse = nullptr);

/// The tiles of part 1, over the tokens sorted by class.  sets [batch * seq_len]; `window` as in
/// AttentionPlan.
AttentionPlan class_plan(std::span<const std::uint64_t> sets, Index batch, Index seq_len,
                         Index window);

}  // namespace focus
