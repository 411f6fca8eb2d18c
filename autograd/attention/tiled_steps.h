#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "autograd/attention/tiled_rows.h"
#include "autograd/base/random.h"
#include "autograd/gemm/gemm.h"

// What forward and backward do alike with a pair of tiles.
namespace focus::tiled {

inline constexpr Index kQueries = AttentionPlan::kQueries;
inline constexpr Index kKeys = AttentionPlan::kKeys;
/// The score of a pair that is not seen.
inline constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

/// A buffer that starts on a cache line; contents undefined.
class Scratch {
 public:
  explicit Scratch(Index size) : tensor_({std::max<Index>(1, size)}) {}
  Real* data() { return tensor_.data(); }

 private:
  Tensor tensor_;
};

/// scores [keys, queries] of the bands of a tile: their keys' rows times their queries' columns.
/// rows_at(column): the keys from that column on, the first of a panel.
template <class RowsAt>
void products(const Visibility& seen, Index head_dim, RowsAt&& rows_at, simd::Panels queries,
              Real* scores) {
  const simd::Kernels& kernels = simd::kernels();
  for (Index column = 0; column < head_dim; column += kernels.panel) {
    const Rows rows = rows_at(column);
    const Index depth = std::min(kernels.panel, head_dim - column);
    for (const KeyBand& band : seen.bands()) {
      queries.first_column = band.first_query;
      kernels.product(band.end - band.begin, band.end_query - band.first_query, depth,
                      rows.data + band.begin * rows.stride, rows.stride, 1, queries, column,
                      scores + band.begin * kQueries + band.first_query, kQueries,
                      {.any = column > 0});
    }
  }
}
inline void products(const Sizes& s, const Visibility& seen, const TiledKeys::Reader& keys,
                     Index kv_head, const simd::Panels& queries, Real* scores) {
  if (const simd::Bf16Kernels* bf16 = keys.products().bf16()) {
    const Rows rows = keys.rows(kv_head, 0);
    for (const KeyBand& band : seen.bands())
      bf16->product(band.end - band.begin, band.end_query - band.first_query, s.head_dim,
                    rows.rounded + band.begin * rows.stride, rows.stride,
                    {queries.data, queries.rows, queries.columns, 0, band.first_query},
                    scores + band.begin * kQueries + band.first_query, kQueries, {});
    return;
  }
  products(
      seen, s.head_dim, [&](Index column) { return keys.rows(kv_head, column); }, queries, scores);
}

/// scores = cap tanh(scores / cap) in the bands of a tile.
inline void soft_cap(const Visibility& seen, Real cap, Real* scores) {
  for (const KeyBand& band : seen.bands())
    for (Index key = band.begin; key < band.end; ++key)
      simd::kernels().softcap_row(scores + key * kQueries + band.first_query,
                                  band.end_query - band.first_query, cap);
}

/// A sum of a tile's queries over its key tiles, [queries, padded_dim]. What it holds of a vector
/// of queries is undefined before something was added.
struct QuerySum {
  Real* data;
  std::uint64_t begun = 0;  // a bit for each vector of queries
  bool has(Index vector) const { return (begun >> vector & 1) != 0; }
};
static_assert(kQueries <= 64);

/// sum = factor[query] sum + weightsᵀ X for the keys that each vector of queries sees; factor null:
/// 1. weights [keys, queries]
inline void weighted_sum(const TileProducts& products, const Visibility& seen, Index queries,
                         const Real* weights, const simd::Panels& x, Index padded_dim,
                         const Real* factor, QuerySum& sum) {
  const simd::Kernels& kernels = simd::kernels();
  for (Index begin = 0; begin < queries;) {
    // Vectors of queries that see the same keys go together.
    const Index vector = begin / kernels.vector;
    const simd::KeySpan span = seen.span(vector, false);
    const bool begun = sum.has(vector), any = span.end > span.begin;
    Index end = begin;
    for (; end < queries; end += kernels.vector) {
      const Index other = end / kernels.vector;
      const simd::KeySpan next = seen.span(other, false);
      if (next.begin != span.begin || next.end != span.end || sum.has(other) != begun) break;
      if (any) sum.begun |= std::uint64_t{1} << other;
    }
    end = std::min(end, queries);
    if (any)
      products.columns_times(end - begin, span, weights + begin, x, padded_dim,
                             sum.data + begin * padded_dim, padded_dim, begun,
                             factor != nullptr ? factor + begin : nullptr);
    begin = end;
  }
}

/// A tile's part of what dropout does to the weights of all heads and sequences,
/// [batch * heads, seq_len, seq_len].
class TileDropout {
 public:
  explicit TileDropout(const AttentionInputs& in)
      : mask_(in.options.dropout, in.options.dropout_key),
        seq_len_(in.q.dim(1)),
        heads_(in.q.dim(2)) {}

  /// x [keys, queries] of one head, in the bands of the tile
  void apply(const AttentionTile& tile, const Visibility& seen, Index head, Real* x) const {
    if (!mask_.active()) return;
    std::array<Index, kQueries> row{};  // of each query the place of its weight for key 0
    for (Index r = 0; r < tile.rows(); ++r) {
      const Index token = tile.plan->token(tile.begin + r);
      row[r] = ((token / seq_len_ * heads_ + head) * seq_len_ + token % seq_len_) * seq_len_;
    }
    for (const KeyBand& band : seen.bands())
      for (Index key = band.begin; key < band.end; ++key) {
        const Index position = tile.plan->token(tile.keys.begin + key) % seq_len_;
        for (Index r = band.first_query; r < std::min(band.end_query, tile.rows()); ++r)
          x[key * kQueries + r] *= mask_.factor(row[r] + position);
      }
  }

 private:
  DropoutMask mask_;
  Index seq_len_, heads_;
};

/// Calls f(number) for every key tile that a query tile sees; the numbers rise.
template <class F>
void for_key_tiles(const AttentionPlan& plan, const AttentionPlan::QueryTile& queries, F&& f) {
  for (const auto& [first, last] : plan.segments_of(queries))
    for (Index key_tile = first; key_tile < last; ++key_tile) f(key_tile);
}

inline AttentionTile pair_of_tiles(const AttentionPlan& plan,
                                   const AttentionPlan::QueryTile& queries, Index key_tile) {
  return {&plan, queries.begin, queries.end, plan.key_tile(key_tile)};
}

/// Adds `products` of a tile to the tally of multiply-adds: each multiplies keys with queries over
/// head_dim.
inline void tally(const Sizes& s, const Visibility& seen, Index queries, int products) {
  Index pairs = 0;
  for (const KeyBand& band : seen.bands())
    pairs += (band.end - band.begin) * (std::min(band.end_query, queries) - band.first_query);
  count_multiply_adds(static_cast<std::uint64_t>(pairs * s.head_dim * products));
}

/// The heads of a task: a block of key heads with the query heads that share them.
struct HeadBlock {
  HeadBlock(const Sizes& s, Index block, Index blocks)
      : first_kv_head(block * s.kv_heads / blocks),
        kv_heads((block + 1) * s.kv_heads / blocks - first_kv_head),
        first(s.query_head >= 0 ? s.query_head
                                : (s.first_kv_head + first_kv_head) * s.heads_per_kv_head),
        count(s.query_head >= 0 ? 1 : kv_heads * s.heads_per_kv_head) {}
  Index first_kv_head, kv_heads;  // counted from the first that is computed
  Index first, count;             // query heads
};

inline TiledKeys::Reader reader(const TiledKeys& keys, const HeadBlock& block) {
  return {keys, block.first_kv_head, block.kv_heads};
}

}  // namespace focus::tiled
