#include "focus/class_plan.h"

#include <algorithm>
#include <map>

#include "autograd/check.h"

namespace focus {
namespace {

constexpr Index kKeys = AttentionPlan::kKeys;
/// Classes of fewer tokens are listed together.
constexpr Index kSmallClass = AttentionPlan::kQueries;

/// Rows in the order of their positions, cut into key tiles from the first.
struct KeyRows {
  Index begin = 0, end = 0;
  Index first_tile = 0;
};

struct Class {
  std::uint64_t set = 0;
  KeyRows rows;
  Index size() const { return rows.end - rows.begin; }
  bool small() const { return size() < kSmallClass; }
  bool meets(const Class& other) const { return (set & other.set) != 0; }
};

KeyRows add_key_tiles(Index begin, Index end, AttentionPlan& plan) {
  const KeyRows rows{begin, end, static_cast<Index>(plan.key_tiles.size())};
  for (Index row = begin; row < end; row += kKeys)
    plan.key_tiles.push_back({row, std::min(end, row + kKeys)});
  return rows;
}

struct Sequence {
  Index first_token = 0;
  std::vector<Index> row_of;          // of each position
  std::vector<std::size_t> class_of;  // likewise
  std::vector<Class> classes;
};

/// Appends a sequence's tokens to the plan's rows, sorted into classes.
Sequence add_classes(std::span<const std::uint64_t> sets, Index first_token, AttentionPlan& plan) {
  Sequence sequence{
      first_token, std::vector<Index>(sets.size()), std::vector<std::size_t>(sets.size()), {}};
  std::map<std::uint64_t, std::vector<std::size_t>> members;  // positions rise inside a class
  for (std::size_t t = 0; t < sets.size(); ++t) members[sets[t]].push_back(t);
  for (const auto& [set, positions] : members) {
    const auto begin = static_cast<Index>(plan.tokens.size());
    for (const std::size_t t : positions) {
      sequence.row_of[t] = static_cast<Index>(plan.tokens.size());
      sequence.class_of[t] = sequence.classes.size();
      plan.tokens.push_back(first_token + static_cast<Index>(t));
    }
    sequence.classes.push_back(
        {set, add_key_tiles(begin, static_cast<Index>(plan.tokens.size()), plan)});
  }
  return sequence;
}

/// Copies of the keys that a class sees in the small classes it meets.
KeyRows add_list(const Sequence& sequence, const Class& c, AttentionPlan& plan) {
  std::vector<char> listed;
  for (const Class& other : sequence.classes) listed.push_back(other.small() && c.meets(other));
  const AttentionPlan::Reach reach = plan.reach(c.rows.begin, c.rows.end);
  const auto begin = static_cast<Index>(plan.tokens.size());
  for (Index token = std::max(sequence.first_token, reach.after + 1); token <= reach.last;
       ++token) {
    const auto t = static_cast<std::size_t>(token - sequence.first_token);
    if (listed[sequence.class_of[t]] == 0) continue;
    plan.tokens.push_back(token);
    plan.copies.push_back(sequence.row_of[t]);
  }
  return add_key_tiles(begin, static_cast<Index>(plan.tokens.size()), plan);
}

/// Appends the key tiles that a query tile sees of some rows. Returns how many rows these are.
Index add_segment(const KeyRows& rows, const AttentionPlan::Reach& reach, AttentionPlan& plan) {
  const auto [begin, end] = plan.rows_in(reach, {rows.begin, rows.end});
  if (begin == end) return 0;
  const Index first = begin - rows.begin, last = end - rows.begin;
  plan.segments.push_back(
      {rows.first_tile + first / kKeys, rows.first_tile + (last + kKeys - 1) / kKeys});
  return last - first;
}

}  // namespace

std::optional<AttentionPlan> class_plan(std::span<const std::uint64_t> sets, Index batch,
                                        Index seq_len, Index window, Index gap, double most) {
  check(static_cast<Index>(sets.size()) == batch * seq_len,
        "sparse_attention: {} membership sets for {} sequences of {}", sets.size(), batch, seq_len);
  AttentionPlan plan;
  plan.window = window;
  plan.gap = gap;
  plan.tokens.reserve(sets.size());
  std::vector<Sequence> sequences;
  for (Index first = 0; first < batch * seq_len; first += seq_len)
    sequences.push_back(add_classes(
        sets.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(seq_len)), first,
        plan));
  Index rows_seen = 0;  // by all query tiles, copies apart
  double cost = 0;
  for (const Sequence& sequence : sequences)
    for (const Class& c : sequence.classes) {
      const bool lists = std::ranges::count_if(sequence.classes, [&](const Class& other) {
                           return c.meets(other) && other.small();
                         }) > 1;
      std::vector<KeyRows> met;
      for (const Class& other : sequence.classes)
        if (c.meets(other) && !(lists && other.small())) met.push_back(other.rows);
      if (lists) met.push_back(add_list(sequence, c, plan));
      const std::size_t first_tile = plan.query_tiles.size();
      for (Index begin = c.rows.begin; begin < c.rows.end; begin += AttentionPlan::kQueries) {
        const Index end = std::min(c.rows.end, begin + AttentionPlan::kQueries);
        const AttentionPlan::Reach reach = plan.reach(begin, end);
        const auto segment = static_cast<Index>(plan.segments.size());
        for (const KeyRows& rows : met) {
          const Index seen = add_segment(rows, reach, plan);
          if (!plan.is_copy(rows.begin)) rows_seen += seen;
        }
        plan.query_tiles.push_back({begin, end, segment, static_cast<Index>(plan.segments.size())});
        cost += plan.cost(plan.query_tiles.back());
      }
      if (cost > most) return std::nullopt;
      plan.heavy_first(first_tile);
    }
  // Packing is another pass over memory: worth it for keys that several query tiles read.
  plan.packs_ahead = rows_seen > 2 * batch * seq_len;
  return plan;
}

}  // namespace focus
