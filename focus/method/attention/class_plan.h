#pragma once

#include <cstdint>
#include <span>

#include "autograd/attention/attention_plan.h"

namespace focus {

/// How the distant pairs that share a group are best computed.
enum class PairForm {
  classes,  // a class sees each class that it meets as tiles of their own
  lists,    // a class sees those it meets as one list: a tile of a few keys costs as much as a full
            // one
  masked,   // all pairs, those that share no group masked
};

/// The form that costs least where each token is in `top_k` of so many groups, drawn evenly.
/// `window` and `gap` as in AttentionPlan; masked only where it `may_mask`. Only sizes decide: what
/// a token's row holds, to the last bit, must not depend on the groups of later tokens.
PairForm cheapest_form(Index seq_len, Index groups, Index top_k, Index window, Index gap,
                       bool may_mask);

/// The distant pairs that share a group, as tiles over the tokens sorted by class: tokens with the
/// same set of groups, in the order of their positions. A class attends to each class whose set
/// meets its own; where there are several, as `lists` says, it sees one list of copies of their
/// keys in the order of positions. sets [batch * seq_len]; `window` and `gap` as in AttentionPlan.
AttentionPlan class_plan(std::span<const std::uint64_t> sets, Index batch, Index seq_len,
                         Index window, Index gap, bool lists = false);

}  // namespace focus
