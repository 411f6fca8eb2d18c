#include "focus/method/summary/chosen_plan.h"

#include <vector>

namespace focus {
namespace {

constexpr Index kKeys = AttentionPlan::kKeys, kQueries = AttentionPlan::kQueries;

/// Where the rows of each class begin, and the end of the last.
using ClassRows = std::vector<Index>;

/// Appends tokens of a sequence to the rows of a plan, sorted by class, then by position: for_each
/// calls f(position, class) for all of them, rising by position; classes [0, count).
template <class ForEach>
ClassRows sort_tokens(Index first_token, Index count, ForEach&& for_each,
                      std::vector<Index>& tokens) {
  ClassRows rows(static_cast<std::size_t>(count) + 1, 0);
  for_each([&](Index, Index c) { ++rows[static_cast<std::size_t>(c) + 1]; });
  rows[0] = static_cast<Index>(tokens.size());
  for (std::size_t c = 1; c < rows.size(); ++c) rows[c] += rows[c - 1];
  tokens.resize(static_cast<std::size_t>(rows.back()));
  ClassRows next = rows;
  for_each([&](Index t, Index c) {
    tokens[static_cast<std::size_t>(next[static_cast<std::size_t>(c)]++)] = first_token + t;
  });
  return rows;
}

/// The keys of a sequence: where the rows and key tiles of each class begin.
struct SortedKeys {
  ClassRows rows;
  std::vector<Index> first_tile;
};

SortedKeys add_keys(ClassView classes, Index first_token, Index seq_len, Index groups, Index sinks,
                    AttentionPlan& plan) {
  SortedKeys keys;
  // Sinks are in no group: a class behind the others, that nobody chooses.
  keys.rows = sort_tokens(
      first_token, groups + 1,
      [&](auto&& f) {
        for (Index t = 0; t < seq_len; ++t)
          f(t, t < sinks ? groups : Index{classes[first_token + t]});
      },
      plan.tokens);
  for (std::size_t c = 0; c + 1 < keys.rows.size(); ++c) {
    keys.first_tile.push_back(static_cast<Index>(plan.key_tiles.size()));
    for (Index row = keys.rows[c]; row < keys.rows[c + 1]; row += kKeys)
      plan.key_tiles.push_back({row, std::min(keys.rows[c + 1], row + kKeys)});
  }
  return keys;
}

/// Query tiles of a class, each with the keys of the class that it sees. Returns how many these
/// are.
Index add_queries(const SortedKeys& keys, std::size_t c, Index begin, Index end,
                  AttentionPlan& plan) {
  Index seen_by_all = 0;
  for (Index row = begin; row < end; row += kQueries) {
    const Index last = std::min(end, row + kQueries);
    const Index first_key = keys.rows[c];
    const auto seen = plan.rows_in(plan.reach(row, last), {first_key, keys.rows[c + 1]});
    if (seen.begin == seen.end) continue;
    const auto segment = static_cast<Index>(plan.segments.size());
    plan.segments.push_back({keys.first_tile[c] + (seen.begin - first_key) / kKeys,
                             keys.first_tile[c] + (seen.end - first_key + kKeys - 1) / kKeys});
    plan.query_tiles.push_back({row, last, segment, segment + 1});
    seen_by_all += seen.end - seen.begin;
  }
  return seen_by_all;
}

}  // namespace

AttentionPlan chosen_plan(ClassView classes, std::span<const ClassView> choices, Index groups,
                          Index batch, Index seq_len, const SummarySettings& settings,
                          Index run_length) {
  AttentionPlan plan;
  plan.window = settings.sliding_window;
  plan.gap = settings.local_window + 1;
  plan.blocks = {.size = settings.block, .seq_len = seq_len};
  const auto ranks = static_cast<Index>(choices.size());
  plan.tokens.reserve(static_cast<std::size_t>((1 + ranks) * batch * seq_len));
  std::vector<SortedKeys> keys;
  for (Index b = 0; b < batch; ++b)
    keys.push_back(add_keys(classes, b * seq_len, seq_len, groups, settings.sinks, plan));
  // Before that no query has a far zone.
  const Index begin = std::min(seq_len, (settings.sinks + settings.local_window + settings.block) /
                                            settings.block * settings.block);
  const Index length = ranks > 1 ? run_length : seq_len;
  Index rows_seen = 0;
  for (Index b = 0; b < batch; ++b)
    for (Index first = begin; first < seq_len; first += length) {
      const auto first_tile = plan.query_tiles.size();
      const ClassRows rows = sort_tokens(
          b * seq_len, groups + 1,
          [&](auto&& f) {
            for (Index t = first; t < std::min(seq_len, first + length); ++t)
              for (const ClassView& choice : choices)
                f(t, std::min<Index>(choice[b * seq_len + t], groups));
          },
          plan.tokens);
      for (std::size_t c = 0; c < static_cast<std::size_t>(groups); ++c) {
        const auto first_of_class = plan.query_tiles.size();
        rows_seen += add_queries(keys[static_cast<std::size_t>(b)], c, rows[c], rows[c + 1], plan);
        if (ranks == 1) plan.heaviest_first(first_of_class);
      }
      if (ranks > 1) plan.runs.push_back(static_cast<Index>(first_tile));
    }
  if (!plan.runs.empty()) plan.runs.push_back(static_cast<Index>(plan.query_tiles.size()));
  // Packing is another pass over memory: worth it for keys that several query tiles read.
  plan.packs_ahead = rows_seen > 2 * batch * seq_len;
  return plan;
}

}  // namespace focus
