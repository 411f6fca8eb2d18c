#pragma once

#include "autograd/tiled_attention.h"
#include "focus/gated_attention.h"

namespace focus {

/// The gate (where gate.gated) and the mask (where gate.membership is not empty) on distant pairs.
/// g [rows, num_groups] and the sets are in the order of the plan's rows.
std::unique_ptr<ScoreRule> focus_rule(Tensor g, GateOptions gate, bool grad_wanted);

/// Leaves only pairs whose sets do not meet.
std::unique_ptr<ScoreRule> disjoint_rule(std::vector<std::uint64_t> sets);

}  // namespace focus
