#include "autograd/attention/attention_plan.h"

#include <functional>
#include <numeric>

namespace focus {

void AttentionPlan::heaviest_first(std::size_t first) {
  const auto cost = [this](const QueryTile& tile) {
    return key_tiles_of(tile) * (tile.end - tile.begin);
  };
  std::ranges::stable_sort(std::span(query_tiles).subspan(first), std::greater{}, cost);
}

Index AttentionPlan::key_tiles_of(const QueryTile& tile) const {
  Index tiles = 0;
  for (const Segment& segment : segments_of(tile)) tiles += segment.end - segment.begin;
  return tiles;
}

double AttentionPlan::average_tile_reads() const {
  Index read = 0;
  for (const QueryTile& tile : query_tiles) read += key_tiles_of(tile);
  return static_cast<double>(read) /
         static_cast<double>(std::max<std::size_t>(1, key_tiles.size()));
}

Index AttentionPlan::seen_after(Index token) const {
  const Index of_window = window == 0 ? -1 : token - window;
  if (blocks.near < 0) return of_window;
  const Index position = token % blocks.seq_len, start = token - position;
  const Index near = position - position % blocks.size - blocks.near;
  return std::max(of_window, near <= blocks.sinks ? start - 1 : start + near - 1);
}

AttentionPlan::Reach AttentionPlan::reach(Index begin, Index end) const {
  return {.after = seen_after(token(begin)), .last = seen_last(token(end - 1))};
}

Index AttentionPlan::end_of_rows(Rows rows, Index last) const {
  while (rows.begin < rows.end) {
    const Index middle = rows.begin + (rows.end - rows.begin) / 2;
    if (token(middle) <= last)
      rows.begin = middle + 1;
    else
      rows.end = middle;
  }
  return rows.begin;
}

AttentionPlan::Rows AttentionPlan::rows_in(const Reach& reach, Rows rows) const {
  const Index begin = end_of_rows(rows, reach.after);
  return {begin, std::max(begin, end_of_rows(rows, reach.last))};
}

double AttentionPlan::cost(const QueryTile& tile) const {
  // A key costs something beside its queries' lanes, fitted to measured times of training.
  constexpr Index kLanes = 16, kPerKey = 8, kPerCopiedKey = 24;
  const Index rows = tile.end - tile.begin, lanes = (rows + kLanes - 1) / kLanes * kLanes;
  const Reach tile_reach = reach(tile.begin, tile.end);
  double total = 0;
  for (const Segment& segment : segments_of(tile)) {
    const Index begin = key_tile(segment.begin).begin;
    const Rows keys = rows_in(tile_reach, {begin, key_tile(segment.end - 1).end});
    total += static_cast<double>(keys.end - keys.begin) *
             static_cast<double>(lanes + (is_copy(begin) ? kPerCopiedKey : kPerKey));
  }
  return total;
}

double AttentionPlan::cost() const {
  double total = 0;
  for (const QueryTile& tile : query_tiles) total += cost(tile);
  return total;
}

std::vector<std::vector<Index>> AttentionPlan::independent_parts() const {
  // Union-find over the key tiles.
  std::vector<std::size_t> parent(key_tiles.size());
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto root = [&](std::size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  const auto key_tile_of = [&](Index row) {
    const auto after = std::ranges::upper_bound(key_tiles, row, {}, &KeyTile::begin);
    return static_cast<std::size_t>(after - key_tiles.begin()) - 1;
  };
  for (std::size_t i = 0; i < copies.size(); ++i)
    parent[root(key_tile_of(own_rows() + static_cast<Index>(i)))] = root(key_tile_of(copies[i]));
  // Queries that have rows of their own, beside the keys', count with the first keys that they see.
  const auto own_tile = [&](const QueryTile& tile) {
    if (tile.begin < key_tiles.back().end) return key_tile_of(tile.begin);
    return static_cast<std::size_t>(segments_of(tile)[0].begin);
  };
  for (const QueryTile& tile : query_tiles) {
    if (tile.first_segment == tile.end_segment) continue;
    const std::size_t own = own_tile(tile);
    for (const Segment& segment : segments_of(tile))
      for (Index key = segment.begin; key < segment.end; ++key)
        parent[root(static_cast<std::size_t>(key))] = root(own);
  }
  std::vector<std::vector<Index>> parts;
  std::vector<std::size_t> part_of(key_tiles.size(), SIZE_MAX);  // of each root
  for (std::size_t i = 0; i < query_tiles.size(); ++i) {
    const QueryTile& tile = query_tiles[i];
    if (tile.first_segment == tile.end_segment) continue;
    std::size_t& part = part_of[root(own_tile(tile))];
    if (part == SIZE_MAX) {
      part = parts.size();
      parts.emplace_back();
    }
    parts[part].push_back(static_cast<Index>(i));
  }
  return parts;
}

namespace {

/// Adds the tiles of a sequence that lies in rows [start, end).
void add_sequence(AttentionPlan& plan, Index start, Index end) {
  constexpr Index kKeys = AttentionPlan::kKeys, kQueries = AttentionPlan::kQueries;
  const auto first_key_tile = static_cast<Index>(plan.key_tiles.size());
  for (Index first = start; first < end; first += kKeys)
    plan.key_tiles.push_back({first, std::min(end, first + kKeys)});
  const std::size_t first_tile = plan.query_tiles.size();
  for (Index begin = start; begin < end; begin += kQueries) {
    const Index last = std::min(end, begin + kQueries);
    const Index first = std::max<Index>(0, plan.seen_after(begin) + 1 - start) / kKeys;
    const auto segment = static_cast<Index>(plan.segments.size());
    plan.segments.push_back(
        {first_key_tile + first, first_key_tile + (last - 1 - start) / kKeys + 1});
    plan.query_tiles.push_back({begin, last, segment, segment + 1});
  }
  plan.heaviest_first(first_tile);
}

}  // namespace

AttentionPlan causal_plan(Index batch, Index seq_len, Index window, AttentionPlan::Blocks blocks) {
  AttentionPlan plan;
  plan.window = window;
  plan.blocks = blocks;
  plan.blocks.seq_len = seq_len;
  for (Index b = 0; b < batch && seq_len > 0; ++b)
    add_sequence(plan, b * seq_len, (b + 1) * seq_len);
  return plan;
}

AttentionPlan document_plan(std::span<const Index> documents, Index window) {
  AttentionPlan plan;
  plan.window = window;
  plan.blocks.seq_len = documents.empty() ? 0 : documents.back();
  for (std::size_t i = 0; i + 1 < documents.size(); ++i)
    add_sequence(plan, documents[i], documents[i + 1]);
  return plan;
}

void Visibility::set(const AttentionTile& t) {
  const AttentionPlan& plan = *t.plan;
  cols_ = t.cols();
  const bool sees_last = plan.token(t.keys.end - 1) <= plan.seen_last(plan.token(t.begin));
  const bool sees_first = plan.token(t.keys.begin) > plan.seen_after(plan.token(t.end - 1));
  if (sees_last)
    last_.fill(static_cast<simd::Lane>(cols_));
  else
    t.keys_up_to([&plan](Index token) { return plan.seen_last(token); }, last_.data());
  if (sees_first)
    first_.fill(0);
  else
    t.keys_up_to([&plan](Index token) { return plan.seen_after(token); }, first_.data());
  if (sees_last && sees_first)
    bands_.assign(1, {0, cols_, 0, simd::padded(simd::kernels(), t.rows())});
  else
    find_bands(t.rows());
}

void Visibility::set(Index rows, Index cols, std::span<const simd::Lane> first,
                     std::span<const simd::Lane> last) {
  cols_ = cols;
  std::ranges::copy(first, first_.begin());
  std::ranges::copy(last, last_.begin());
  find_bands(rows);
}

void Visibility::find_bands(Index rows) {
  const simd::Kernels& kernels = simd::kernels();
  const Index padded = simd::padded(kernels, rows);
  bands_.clear();
  for (Index r = rows; r < padded; ++r) {
    const auto from = static_cast<std::size_t>(rows - 1), to = static_cast<std::size_t>(r);
    first_[to] = first_[from];
    last_[to] = last_[from];
  }
  for (Index begin = 0; begin < cols_; begin += kBand) {
    const Index end = std::min(cols_, begin + kBand);
    // Runs rise from query to query: the last of a vector sees furthest ahead, the first furthest
    // back.
    Index from = 0, to = padded;
    while (from < padded && last_[from + kernels.vector - 1] <= begin) from += kernels.vector;
    while (to > from && first_[to - kernels.vector] >= end) to -= kernels.vector;
    if (from == to) continue;
    if (!bands_.empty() && bands_.back().end == begin && bands_.back().first_query == from &&
        bands_.back().end_query == to)
      bands_.back().end = end;
    else
      bands_.push_back({begin, end, from, to});
  }
}

simd::KeySpan Visibility::span(Index vector, bool whole_bands) const {
  const Index width = simd::kernels().vector;
  const auto head = static_cast<std::size_t>(vector * width);
  const auto tail = head + static_cast<std::size_t>(width) - 1;
  simd::KeySpan span;
  span.begin = first_[head];
  span.end = std::max<Index>(span.begin, last_[tail]);
  if (whole_bands) {
    span.begin = span.begin / kBand * kBand;
    span.end = std::min(cols_, (span.end + kBand - 1) / kBand * kBand);
  }
  span.all_begin = std::clamp<Index>(first_[tail], span.begin, span.end);
  span.all_end = std::clamp<Index>(last_[head], span.all_begin, span.end);
  return span;
}

}  // namespace focus
