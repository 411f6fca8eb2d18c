#pragma once

#include <cstdint>
#include <span>

#include "autograd/attention/attention_plan.h"
#include "focus/summary/zones.h"

namespace focus {

/// A class for each token of one key head, which lie `stride` apart.
struct ClassView {
  const std::uint8_t* data = nullptr;
  Index stride = 1;
  std::uint8_t operator[](Index token) const { return data[token * stride]; }
};

/// The far pairs of queries with the keys of a class that each has chosen, as tiles of queries
/// sorted by that class against keys sorted by theirs. Query tiles have rows of their own, behind
/// the keys'. Classes at or above `groups` choose nothing. classes, choice [batch * seq_len]
AttentionPlan chosen_plan(ClassView classes, ClassView choice, Index groups, Index batch,
                          Index seq_len, const SummaryZones& zones);

}  // namespace focus
