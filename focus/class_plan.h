#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "autograd/attention_plan.h"

namespace focus {

/// The distant pairs that share a group, as tiles over the tokens sorted by class: tokens with the
/// same set of groups, in the order of their positions. A class attends to each class whose set
/// meets its own. Small ones of these, of which there are many where k > 1, it sees as one list of
/// copies in the order of positions, for a tile of a few keys costs as much as a full one.
/// sets [batch * seq_len]; `window` and `gap` as in AttentionPlan. Nothing where it would cost more
/// than `most`, in the units of AttentionPlan::cost.
std::optional<AttentionPlan> class_plan(std::span<const std::uint64_t> sets, Index batch,
                                        Index seq_len, Index window, Index gap,
                                        double most = std::numeric_limits<double>::infinity());

}  // namespace focus
