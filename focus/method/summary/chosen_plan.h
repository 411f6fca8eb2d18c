#pragma once

#include <span>

#include "autograd/attention/attention_plan.h"
#include "focus/method/grouping/key_classes.h"
#include "focus/method/summary/summary_settings.h"

namespace focus {

/// The far pairs of queries with the keys of the classes that each has chosen, as tiles of queries
/// sorted by such a class against keys sorted by theirs. Query tiles have rows of their own, behind
/// the keys'. Classes at or above `groups` choose nothing.  classes and each of `choices` [batch *
/// seq_len]; the choices of a token differ. With several choices a token is in several tiles, and
/// the plan, which then serves forward passes alone, has runs: each the queries of `run_length`
/// positions.
AttentionPlan chosen_plan(ClassView classes, std::span<const ClassView> choices, Index groups,
                          Index batch, Index seq_len, const SummarySettings& settings,
                          Index run_length);

}  // namespace focus
