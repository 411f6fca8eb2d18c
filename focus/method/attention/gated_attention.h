#pragma once

#include "autograd/ops.h"
#include "focus/method/attention/gate.h"

namespace focus {

/// Soft attention: causal attention in which the scores of distant pairs pass the gate of
/// g_i . g_j, the same for all heads. Order on a score: scale, soft-cap, gate.
/// g [batch, seq_len, num_groups]; the rest as attention(). Differentiable in q, k, v and g. Throws
/// where the gate has membership sets: hard attention is sparse_attention's.
Variable gated_attention(const Variable& q, const Variable& k, const Variable& v, const Variable& g,
                         const AttentionOptions& options, const GateOptions& gate);

}  // namespace focus
