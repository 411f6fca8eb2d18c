#include "focus/method/grouping/group_sets.h"

#include "focus/method/documents.h"

namespace focus {

std::vector<std::uint64_t> with_sinks(std::span<const std::uint64_t> membership, Index seq_len,
                                      Index sinks) {
  std::vector<std::uint64_t> sets(membership.begin(), membership.end());
  if (sets.empty() || sinks == 0) return sets;
  fill_sinks<std::uint64_t>(sequence_starts(static_cast<Index>(sets.size()) / seq_len, seq_len),
                            sinks, kEveryGroup, sets);
  return sets;
}

}  // namespace focus
