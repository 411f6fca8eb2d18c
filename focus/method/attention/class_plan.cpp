#include "focus/method/attention/class_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>

#include "autograd/base/check.h"
#include "autograd/base/random.h"

namespace focus {
namespace {

constexpr Index kKeys = AttentionPlan::kKeys;

/// Rows in the order of their positions, cut into key tiles from the first.
struct KeyRows {
  Index begin = 0, end = 0;
  Index first_tile = 0;
};

struct Class {
  std::uint64_t set = 0;
  KeyRows rows;
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
  std::unordered_map<std::uint64_t, Index> sizes;
  for (const std::uint64_t set : sets) ++sizes[set];
  std::vector<std::pair<std::uint64_t, Index>> classes(sizes.begin(), sizes.end());
  std::ranges::sort(classes);
  std::vector<Index> next_row;  // of each class
  auto row = static_cast<Index>(plan.tokens.size());
  for (const auto& [set, size] : classes) {
    sizes[set] = static_cast<Index>(next_row.size());  // from here on its number
    next_row.push_back(row);
    sequence.classes.push_back({set, add_key_tiles(row, row + size, plan)});
    row += size;
  }
  plan.tokens.resize(static_cast<std::size_t>(row));
  for (std::size_t t = 0; t < sets.size(); ++t) {  // so positions rise inside a class
    const auto number = static_cast<std::size_t>(sizes[sets[t]]);
    sequence.class_of[t] = number;
    sequence.row_of[t] = next_row[number];
    plan.tokens[static_cast<std::size_t>(next_row[number]++)] = first_token + static_cast<Index>(t);
  }
  return sequence;
}

/// Copies of the keys that a class sees in the classes it meets.
KeyRows add_list(const Sequence& sequence, const Class& c, AttentionPlan& plan) {
  std::vector<char> listed;
  for (const Class& other : sequence.classes) listed.push_back(c.meets(other));
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

/// Of a class the first row that sees a key of those it meets: the rows before need no query tile.
Index first_seeing_row(const Class& c, std::span<const KeyRows> met, const AttentionPlan& plan) {
  Index earliest = std::numeric_limits<Index>::max();
  for (const KeyRows& rows : met)
    if (rows.begin < rows.end) earliest = std::min(earliest, plan.token(rows.begin));
  if (earliest == std::numeric_limits<Index>::max()) return c.rows.end;
  return plan.end_of_rows({c.rows.begin, c.rows.end}, earliest + plan.gap - 1);
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

/// How many sets of `top_k` groups there are.
double number_of_sets(Index groups, Index top_k) {
  double number = 1;
  for (Index i = 0; i < top_k; ++i)
    number *= static_cast<double>(groups - i) / static_cast<double>(i + 1);
  return number;
}

/// Sets of `top_k` groups, drawn evenly.
std::vector<std::uint64_t> even_sets(Index seq_len, Index groups, Index top_k) {
  Rng rng(1);
  std::vector<std::uint64_t> sets(static_cast<std::size_t>(seq_len), 0);
  for (std::uint64_t& set : sets)
    while (std::popcount(set) < top_k)
      set |= std::uint64_t{1} << rng.below(static_cast<std::uint64_t>(groups));
  return sets;
}

}  // namespace

PairForm cheapest_form(Index seq_len, Index groups, Index top_k, Index window, Index gap,
                       bool may_mask) {
  if (top_k <= 1) return PairForm::classes;
  if (top_k >= groups) return may_mask ? PairForm::masked : PairForm::classes;
  // What a tile costs beside its keys is not in AttentionPlan::cost: classes that fill no tile of
  // queries are listed whatever that says.
  constexpr double kFull = AttentionPlan::kQueries, kMany = 16 * kFull;
  const double class_size = static_cast<double>(seq_len) / number_of_sets(groups, top_k);
  const bool lists = class_size < kFull;
  const PairForm form = lists ? PairForm::lists : PairForm::classes;
  if (!may_mask || class_size > kMany) return form;
  static std::mutex mutex;
  static std::map<std::array<Index, 5>, PairForm> known;
  const std::scoped_lock lock(mutex);
  const auto [place, is_new] = known.try_emplace({seq_len, groups, top_k, window, gap}, form);
  if (!is_new) return place->second;
  // Under a mask the near pairs cost nothing more.
  const Index near = std::min(seq_len, window > 0 ? std::min(window, gap) : gap);
  const double masked =
      causal_plan(1, seq_len, window).cost() - causal_plan(1, seq_len, near).cost();
  const std::vector<std::uint64_t> sets = even_sets(seq_len, groups, top_k);
  if (masked < class_plan(sets, 1, seq_len, window, gap, lists).cost())
    place->second = PairForm::masked;
  return place->second;
}

AttentionPlan class_plan(std::span<const std::uint64_t> sets, Index batch, Index seq_len,
                         Index window, Index gap, bool lists) {
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
  for (const Sequence& sequence : sequences)
    for (const Class& c : sequence.classes) {
      std::vector<KeyRows> met;
      for (const Class& other : sequence.classes)
        if (c.meets(other)) met.push_back(other.rows);
      const Index first_row = first_seeing_row(c, met, plan);
      if (lists && met.size() > 1) met = {add_list(sequence, c, plan)};
      const std::size_t first_tile = plan.query_tiles.size();
      for (Index begin = first_row; begin < c.rows.end; begin += AttentionPlan::kQueries) {
        const Index end = std::min(c.rows.end, begin + AttentionPlan::kQueries);
        const AttentionPlan::Reach reach = plan.reach(begin, end);
        const auto segment = static_cast<Index>(plan.segments.size());
        for (const KeyRows& rows : met) {
          const Index seen = add_segment(rows, reach, plan);
          if (!plan.is_copy(rows.begin)) rows_seen += seen;
        }
        plan.query_tiles.push_back({begin, end, segment, static_cast<Index>(plan.segments.size())});
      }
      plan.heaviest_first(first_tile);
    }
  // Packing is another pass over memory: worth it for keys that several query tiles read.
  plan.packs_ahead = rows_seen > 2 * batch * seq_len;
  return plan;
}

}  // namespace focus
