#include "focus/method/attention/group_plans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/random.h"

namespace focus {
namespace {

constexpr Index kTileKeys = AttentionPlan::kKeys, kTileQueries = AttentionPlan::kQueries;

/// Keys in the order of their positions, cut into tiles from the first.
struct KeyRows {
  Index begin = 0, end = 0;
  Index first_tile = 0;
};

KeyRows add_key_tiles(Index begin, Index end, AttentionPlan& plan) {
  const KeyRows rows{begin, end, std::ssize(plan.key_tiles)};
  for (Index row = begin; row < end; row += kTileKeys)
    plan.key_tiles.push_back({row, std::min(end, row + kTileKeys)});
  return rows;
}

/// Appends tokens of a sequence to the rows of a plan, sorted by bucket, then by position: for_each
/// calls f(position, bucket) for all of them, rising by position; buckets [0, count). Returns where
/// the rows of each bucket begin, and the end of the last.
template <class ForEach>
std::vector<Index> sort_tokens(Index first_token, Index count, ForEach&& for_each,
                               std::vector<Index>& tokens) {
  std::vector<Index> rows(count + 1, 0);
  for_each([&](Index, Index bucket) { ++rows[bucket + 1]; });
  rows[0] = std::ssize(tokens);
  for (std::size_t b = 1; b < rows.size(); ++b) rows[b] += rows[b - 1];
  tokens.resize(rows.back());
  std::vector<Index> next = rows;
  for_each([&](Index t, Index bucket) { tokens[next[bucket]++] = first_token + t; });
  return rows;
}

/// Appends tiles of the queries in rows [begin, end), each with the keys of `met` that it sees.
/// Returns how many keys these are.
Index add_query_tiles(Index begin, Index end, std::span<const KeyRows> met, AttentionPlan& plan) {
  Index seen_by_all = 0;
  for (Index row = begin; row < end; row += kTileQueries) {
    const Index last = std::min(end, row + kTileQueries), segment = std::ssize(plan.segments);
    const AttentionPlan::Reach reach = plan.reach(row, last);
    for (const KeyRows& rows : met) {
      const auto seen = plan.rows_in(reach, {rows.begin, rows.end});
      if (seen.begin == seen.end) continue;
      plan.segments.push_back(
          {rows.first_tile + (seen.begin - rows.begin) / kTileKeys,
           rows.first_tile + (seen.end - rows.begin + kTileKeys - 1) / kTileKeys});
      seen_by_all += seen.end - seen.begin;
    }
    if (segment < std::ssize(plan.segments))
      plan.query_tiles.push_back({row, last, segment, std::ssize(plan.segments)});
  }
  return seen_by_all;
}

struct Bucket {
  std::uint64_t mask = 0;
  KeyRows rows;
  bool meets(const Bucket& other) const { return (mask & other.mask) != 0; }
};

struct Sequence {
  Index first_token = 0;
  std::vector<Index> row_of;     // of each position
  std::vector<Index> bucket_of;  // likewise
  std::vector<Bucket> buckets;
};

/// Appends a sequence's tokens to the plan's rows, sorted into buckets.
Sequence add_buckets(std::span<const std::uint64_t> masks, Index first_token, AttentionPlan& plan) {
  Sequence sequence{first_token, std::vector<Index>(masks.size()), {}, {}};
  std::map<std::uint64_t, Index> numbers;
  for (const std::uint64_t mask : masks) numbers.try_emplace(mask);
  for (auto& [mask, number] : numbers) {
    number = std::ssize(sequence.buckets);
    sequence.buckets.push_back({mask, {}});
  }
  for (const std::uint64_t mask : masks) sequence.bucket_of.push_back(numbers[mask]);
  const auto for_each = [&](auto&& f) {
    for (Index t = 0; t < std::ssize(masks); ++t) f(t, sequence.bucket_of[t]);
  };
  const std::vector<Index> rows =
      sort_tokens(first_token, std::ssize(sequence.buckets), for_each, plan.tokens);
  for (std::size_t b = 0; b < sequence.buckets.size(); ++b)
    sequence.buckets[b].rows = add_key_tiles(rows[b], rows[b + 1], plan);
  for (Index row = rows.front(); row < rows.back(); ++row)
    sequence.row_of[plan.token(row) - first_token] = row;
  return sequence;
}

/// Copies of the keys that a bucket sees in the buckets it meets.
KeyRows add_list(const Sequence& sequence, const Bucket& bucket, AttentionPlan& plan) {
  const AttentionPlan::Reach reach = plan.reach(bucket.rows.begin, bucket.rows.end);
  const Index begin = std::ssize(plan.tokens);
  for (Index token = std::max(sequence.first_token, reach.after + 1); token <= reach.last;
       ++token) {
    const Index t = token - sequence.first_token;
    if (!bucket.meets(sequence.buckets[sequence.bucket_of[t]])) continue;
    plan.tokens.push_back(token);
    plan.copies.push_back(sequence.row_of[t]);
  }
  return add_key_tiles(begin, std::ssize(plan.tokens), plan);
}

/// The first row of a bucket that sees a key of those it meets: the rows before need no query tile.
Index first_seeing_row(const Bucket& bucket, std::span<const KeyRows> met,
                       const AttentionPlan& plan) {
  Index earliest = std::numeric_limits<Index>::max() / 2;
  for (const KeyRows& rows : met)
    if (rows.begin < rows.end) earliest = std::min(earliest, plan.token(rows.begin));
  return plan.end_of_rows({bucket.rows.begin, bucket.rows.end}, earliest + plan.gap - 1);
}

}  // namespace

PairForm cheapest_form(Index seq_len, Index groups, Index top_k, Index window, Index gap,
                       bool may_mask) {
  if (top_k <= 1) return PairForm::buckets;
  if (top_k >= groups) return may_mask ? PairForm::masked : PairForm::buckets;
  // What a tile costs beside its keys is not in AttentionPlan::cost: buckets that fill no tile of
  // queries are listed whatever that says.
  constexpr double kFull = kTileQueries, kMany = 16 * kFull;
  double possible = 1;  // masks of top_k groups
  for (Index i = 0; i < top_k; ++i)
    possible *= static_cast<double>(groups - i) / static_cast<double>(i + 1);
  const double bucket_size = static_cast<double>(seq_len) / possible;
  const bool lists = bucket_size < kFull;
  const PairForm form = lists ? PairForm::lists : PairForm::buckets;
  if (!may_mask || bucket_size > kMany) return form;
  static std::mutex mutex;
  static std::map<std::array<Index, 5>, PairForm> known;
  const std::scoped_lock lock(mutex);
  const auto [place, is_new] = known.try_emplace({seq_len, groups, top_k, window, gap}, form);
  if (!is_new) return place->second;
  // Under a mask the local pairs cost nothing more.
  const Index local = std::min(seq_len, window > 0 ? std::min(window, gap) : gap);
  const double masked =
      causal_plan(1, seq_len, window).cost() - causal_plan(1, seq_len, local).cost();
  Rng rng(1);
  std::vector<std::uint64_t> masks(seq_len, 0);  // of top_k groups, drawn evenly
  for (std::uint64_t& mask : masks)
    while (std::popcount(mask) < top_k)
      mask |= std::uint64_t{1} << rng.below(static_cast<std::uint64_t>(groups));
  if (masked < shared_groups_plan(masks, 1, seq_len, window, gap, lists).cost())
    place->second = PairForm::masked;
  return place->second;
}

AttentionPlan shared_groups_plan(std::span<const std::uint64_t> masks, Index batch, Index seq_len,
                                 Index window, Index gap, bool lists) {
  check(std::ssize(masks) == batch * seq_len,
        "sparse_attention: {} membership masks for {} sequences of {}", masks.size(), batch,
        seq_len);
  AttentionPlan plan;
  plan.window = window;
  plan.gap = gap;
  plan.tokens.reserve(masks.size());
  std::vector<Sequence> sequences;
  for (Index first = 0; first < batch * seq_len; first += seq_len)
    sequences.push_back(add_buckets(masks.subspan(first, seq_len), first, plan));
  Index rows_seen = 0;  // by all query tiles, copies apart
  for (const Sequence& sequence : sequences)
    for (const Bucket& bucket : sequence.buckets) {
      std::vector<KeyRows> met;
      for (const Bucket& other : sequence.buckets)
        if (bucket.meets(other)) met.push_back(other.rows);
      const Index first_row = first_seeing_row(bucket, met, plan);
      const bool as_list = lists && met.size() > 1;
      if (as_list) met = {add_list(sequence, bucket, plan)};
      const std::size_t first_tile = plan.query_tiles.size();
      const Index seen = add_query_tiles(first_row, bucket.rows.end, met, plan);
      if (!as_list) rows_seen += seen;
      plan.heaviest_first(first_tile);
    }
  // Another pass over memory: worth it for keys that several query tiles read.
  plan.packs_ahead = rows_seen > 2 * batch * seq_len;
  return plan;
}

AttentionPlan selected_groups_plan(GroupIdView ids, std::span<const GroupIdView> selections,
                                   Index groups, Index batch, Index seq_len,
                                   const SummarySettings& settings, Index run_length) {
  AttentionPlan plan;
  plan.window = settings.sliding_window;
  plan.gap = settings.local_window + 1;
  plan.blocks = {.size = settings.block, .seq_len = seq_len};
  const Index ranks = std::ssize(selections);
  plan.tokens.reserve((1 + ranks) * batch * seq_len);
  std::vector<std::vector<KeyRows>> keys;  // of each sequence and group
  for (Index b = 0; b < batch; ++b) {
    // Sinks are in no group: a bucket behind the others, that nobody selects.
    const auto for_each = [&](auto&& f) {
      for (Index t = 0; t < seq_len; ++t)
        f(t, t < settings.sinks ? groups : Index{ids[b * seq_len + t]});
    };
    const std::vector<Index> rows = sort_tokens(b * seq_len, groups + 1, for_each, plan.tokens);
    keys.emplace_back();
    for (std::size_t c = 0; c + 1 < rows.size(); ++c)
      keys.back().push_back(add_key_tiles(rows[c], rows[c + 1], plan));
  }
  // Before that no query has a distant zone.
  const Index block = settings.block;
  const Index begin =
      std::min(seq_len, (settings.sinks + settings.local_window + block) / block * block);
  const Index length = ranks > 1 ? run_length : seq_len;
  Index rows_seen = 0;
  for (Index b = 0; b < batch; ++b)
    for (Index first = begin; first < seq_len; first += length) {
      if (ranks > 1) plan.runs.push_back(std::ssize(plan.query_tiles));
      const auto for_each = [&](auto&& f) {
        for (Index t = first; t < std::min(seq_len, first + length); ++t)
          for (const GroupIdView& selection : selections)
            f(t, std::min<Index>(selection[b * seq_len + t], groups));
      };
      const std::vector<Index> rows = sort_tokens(b * seq_len, groups + 1, for_each, plan.tokens);
      for (Index c = 0; c < groups; ++c) {
        const auto first_of_group = plan.query_tiles.size();
        const KeyRows& of_group = keys[b][c];
        rows_seen += add_query_tiles(rows[c], rows[c + 1], {&of_group, 1}, plan);
        if (ranks == 1) plan.heaviest_first(first_of_group);
      }
    }
  if (!plan.runs.empty()) plan.runs.push_back(std::ssize(plan.query_tiles));
  // Another pass over memory: worth it for keys that several query tiles read.
  plan.packs_ahead = rows_seen > 2 * batch * seq_len;
  return plan;
}

}  // namespace focus
