#pragma once

#include <span>

#include "autograd/attention/tiled_attention.h"
#include "focus/method/attention/gate.h"

namespace focus {

/// The gate of g_i . g_j on distant pairs.  g [rows, num_groups] in the order of the plan's rows.
/// Where `gate` has membership sets, distant pairs that share no group are masked: for the logit
/// gate, which multiplies the scores, that is not possible while it is kept.  g's shape is
/// [batch, seq_len, num_groups]; `documents` as in sequence_starts().
std::unique_ptr<ScoreRule> focus_rule(Tensor g, const GateOptions& gate, bool grad_wanted,
                                      std::span<const Index> documents = {});

}  // namespace focus
