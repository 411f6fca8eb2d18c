#include "focus/summary/chosen_plan.h"

#include <vector>

namespace focus {
namespace {

constexpr Index kKeys = AttentionPlan::kKeys, kQueries = AttentionPlan::kQueries;

/// Where the rows of each class begin, and the end of the last.
using ClassRows = std::vector<Index>;

/// Appends the sequence's tokens to the rows of a plan, sorted by class, then by position: those of
/// `of(position)` [0, classes).
template <class Of>
ClassRows sort_tokens(Index first_token, Index begin, Index end, Index classes, Of&& of,
                      std::vector<Index>& tokens) {
  ClassRows rows(static_cast<std::size_t>(classes) + 1, 0);
  for (Index t = begin; t < end; ++t) ++rows[static_cast<std::size_t>(of(t)) + 1];
  rows[0] = static_cast<Index>(tokens.size());
  for (std::size_t c = 1; c < rows.size(); ++c) rows[c] += rows[c - 1];
  tokens.resize(static_cast<std::size_t>(rows.back()));
  ClassRows next = rows;
  for (Index t = begin; t < end; ++t)
    tokens[static_cast<std::size_t>(next[static_cast<std::size_t>(of(t))]++)] = first_token + t;
  return rows;
}

}  // namespace

AttentionPlan chosen_plan(ClassView classes, ClassView choice, Index groups, Index batch,
                          Index seq_len, const SummaryZones& zones) {
  AttentionPlan plan;
  plan.window = zones.sliding_window;
  plan.gap = zones.window + 1;
  plan.blocks = {.size = zones.block, .seq_len = seq_len};
  plan.tokens.reserve(static_cast<std::size_t>(2 * batch * seq_len));
  struct Keys {
    ClassRows rows;
    std::vector<Index> first_tile;  // of each class
  };
  std::vector<Keys> keys;
  for (Index b = 0; b < batch; ++b) {
    const Index first = b * seq_len;
    // Sinks are in no group: a class behind the others, that nobody chooses.
    Keys of;
    of.rows = sort_tokens(
        first, 0, seq_len, groups + 1,
        [&](Index t) { return t < zones.sinks ? groups : Index{classes[first + t]}; }, plan.tokens);
    for (std::size_t c = 0; c + 1 < of.rows.size(); ++c) {
      of.first_tile.push_back(static_cast<Index>(plan.key_tiles.size()));
      for (Index row = of.rows[c]; row < of.rows[c + 1]; row += kKeys)
        plan.key_tiles.push_back({row, std::min(of.rows[c + 1], row + kKeys)});
    }
    keys.push_back(std::move(of));
  }
  Index rows_seen = 0;
  for (Index b = 0; b < batch; ++b) {
    const Index first = b * seq_len;
    const Keys& of = keys[static_cast<std::size_t>(b)];
    // Before that no query has a far zone.
    const Index begin = std::min(
        seq_len, (zones.sinks + zones.window + zones.block) / zones.block * zones.block);
    const ClassRows rows = sort_tokens(
        first, begin, seq_len, groups + 1,
        [&](Index t) { return std::min<Index>(choice[first + t], groups); }, plan.tokens);
    for (std::size_t c = 0; c < static_cast<std::size_t>(groups); ++c) {
      const std::size_t first_tile = plan.query_tiles.size();
      for (Index row = rows[c]; row < rows[c + 1]; row += kQueries) {
        const Index end = std::min(rows[c + 1], row + kQueries);
        const auto seen =
            plan.rows_in(plan.reach(row, end), {.begin = of.rows[c], .end = of.rows[c + 1]});
        if (seen.begin == seen.end) continue;
        const auto segment = static_cast<Index>(plan.segments.size());
        const Index from = seen.begin - of.rows[c], to = seen.end - of.rows[c];
        plan.segments.push_back(
            {of.first_tile[c] + from / kKeys, of.first_tile[c] + (to + kKeys - 1) / kKeys});
        plan.query_tiles.push_back({row, end, segment, segment + 1});
        rows_seen += to - from;
      }
      plan.heavy_first(first_tile);
    }
  }
  // Packing is another pass over memory: worth it for keys that several query tiles read.
  plan.packs_ahead = rows_seen > 2 * batch * seq_len;
  return plan;
}

}  // namespace focus
