#pragma once

#include <cstdint>
#include <span>

#include "autograd/attention/attention_plan.h"
#include "focus/method/grouping/group_ids.h"
#include "focus/method/summary_settings.h"

namespace focus {

/// How the distant pairs that share a group are best computed.
enum class PairForm {
  buckets,  // a bucket sees each bucket that it meets as tiles of their own
  lists,   // a bucket sees those it meets as one list: a tile of a few keys costs as much as a full
           // one
  masked,  // all pairs, those that share no group masked
};

/// The form that costs least where each token is in `top_k` of so many groups, drawn evenly.
/// `window` and `gap` as in AttentionPlan; masked only where it `may_mask`. Only sizes decide: what
/// a token's row holds, to the last bit, must not depend on the groups of later tokens.
PairForm cheapest_form(Index seq_len, Index groups, Index top_k, Index window, Index gap,
                       bool may_mask);

/// The distant pairs that share a group, as tiles over the tokens sorted by bucket: tokens with the
/// same mask of groups, in the order of their positions. A bucket attends to each bucket whose mask
/// meets its own; where there are several, as `lists` says, it sees one list of copies of their
/// keys in the order of positions. masks [batch * seq_len]; `window` and `gap` as in AttentionPlan.
AttentionPlan shared_groups_plan(std::span<const std::uint64_t> masks, Index batch, Index seq_len,
                                 Index window, Index gap, bool lists = false);

/// The distant pairs of queries with the keys of the groups that each has selected, as tiles of
/// queries sorted by such a group against keys sorted by theirs. Query tiles have rows of their
/// own, behind the keys'. A number at or above `groups` selects nothing.  ids and each of
/// `selections` [batch * seq_len]; the selections of a token differ. With several selections a
/// token is in several tiles, and the plan, which then serves forward passes alone, has runs: each
/// the queries of `run_length` positions.
AttentionPlan selected_groups_plan(GroupIdView ids, std::span<const GroupIdView> selections,
                                   Index groups, Index batch, Index seq_len,
                                   const SummarySettings& settings, Index run_length);

}  // namespace focus
