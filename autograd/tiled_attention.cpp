#include "autograd/tiled_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "autograd/check.h"
#include "autograd/gemm.h"
#include "autograd/parallel.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

using simd::Panels;

using Tile = AttentionTile;

constexpr Index kTileQueries = AttentionPlan::kQueries;
constexpr Index kTileKeys = AttentionPlan::kKeys;
/// On the causal diagonal a tile goes in bands of so many rows, each as wide as it has to be.
constexpr Index kBand = 24;
/// Rows of scores lie this far apart: not a power of two, whose rows would share cache sets.
constexpr Index kScoreStride = kTileKeys + 16;
/// Backward deals its query tiles to about so many tasks, each with key and value gradients of its
/// own, summed in a fixed order: a constant, so that bits do not depend on the thread count.
constexpr Index kBackwardTasks = 16;
/// Heads that share the gate of a tile in backward come in at most so many groups.
constexpr Index kBackwardHeadGroups = 4;
constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

struct Sizes {
  explicit Sizes(const AttentionInputs& in)
      : rows(in.q.dim(0) * in.q.dim(1)),
        heads(in.q.dim(2)),
        kv_heads(in.k.dim(2)),
        head_dim(in.q.dim(3)),
        shared(heads / kv_heads),
        padded_dim(simd::padded(simd::kernels(), head_dim)) {}

  Index rows;  // tokens of all sequences
  Index heads, kv_heads, head_dim;
  Index shared;  // query heads to a key head
  Index padded_dim;

  Index q_stride() const { return heads * head_dim; }
  Index kv_stride() const { return kv_heads * head_dim; }
  Index q_offset(Index row, Index head) const { return (row * heads + head) * head_dim; }
  Index kv_offset(Index row, Index kv_head) const { return (row * kv_heads + kv_head) * head_dim; }
};

/// The keys of a tile that a row may see: columns [begin, end).
struct Visible {
  Index begin, end;
};

/// What each row of a tile sees of its keys; worked out once for all heads.
class Visibility {
 public:
  void set(const Tile& t) {
    rows_ = t.rows();
    uniform_ = true;
    for (Index r = 0; r < rows_; ++r) {
      const Index query = t.plan->position(t.begin + r);
      Visible& seen = seen_[static_cast<std::size_t>(r)];
      seen.end = t.plan->keys_before(t.keys, query + 1);
      seen.begin = t.plan->window > 0
                       ? std::min(seen.end, t.plan->keys_before(t.keys, query - t.plan->window + 1))
                       : 0;
      uniform_ = uniform_ && seen.begin == 0 && seen.end == t.cols();
    }
  }
  const Visible& operator[](Index r) const { return seen_[static_cast<std::size_t>(r)]; }
  Index rows() const { return rows_; }
  /// Every row sees the whole tile.
  bool uniform() const { return uniform_; }

 private:
  std::array<Visible, kTileQueries> seen_{};
  Index rows_ = 0;
  bool uniform_ = false;
};

/// Rows of one head, as a matrix.
struct Rows {
  const Real* data;
  Index stride;
};
/// The plan's rows [begin, end) of one head of x: x itself where the plan keeps the tokens' order,
/// else a copy in `gathered`.
Rows rows_of(const AttentionPlan& plan, const Tensor& x, Index begin, Index end, Index head,
             std::vector<Real>& gathered) {
  const Index stride = x.dim(2) * x.dim(3), head_dim = x.dim(3);
  const Real* first = x.data() + head * head_dim;
  if (plan.tokens.empty()) return {first + begin * stride, stride};
  gathered.resize(static_cast<std::size_t>((end - begin) * head_dim));
  for (Index row = begin; row < end; ++row)
    std::copy_n(first + plan.token(row) * stride, head_dim,
                gathered.data() + (row - begin) * head_dim);
  return {gathered.data(), head_dim};
}

/// A key or value matrix of every head, packed key tile by key tile for products over it.
class PackedKeys {
 public:
  /// transposed: panels of depth head_dim whose columns are keys; else of depth keys.
  PackedKeys(const Sizes& s, const AttentionPlan& plan, const Tensor& x, bool transposed,
             Real factor)
      : s_(s), plan_(plan), transposed_(transposed) {
    const simd::Kernels& kernels = simd::kernels();
    const auto tiles = static_cast<Index>(plan.key_tiles.size());
    for (const AttentionPlan::KeyTile& tile : plan.key_tiles) {
      const Index keys = tile.end - tile.begin;
      places_.push_back(size_);
      size_ += transposed ? s.head_dim * simd::padded(kernels, keys) : keys * s.padded_dim;
    }
    packed_ = Tensor({s.kv_heads, size_});
    parallel_chunks(s.kv_heads * tiles, 4, [&, out = packed_.data()](Index begin, Index end) {
      std::vector<Real> gathered;
      for (Index i = begin; i < end; ++i) {
        const Index kv_head = i / tiles;
        const auto [first, last] = plan.key_tiles[static_cast<std::size_t>(i % tiles)];
        const Rows source = rows_of(plan, x, first, last, kv_head, gathered);
        Real* to = out + kv_head * size_ + places_[static_cast<std::size_t>(i % tiles)];
        const auto pack = transposed ? kernels.pack_transposed : kernels.pack;
        pack(source.data, source.stride, last - first, s.head_dim, factor, to);
      }
    });
  }

  Panels tile(Index kv_head, Index key_tile) const {
    const auto [first, last] = plan_.key_tiles[static_cast<std::size_t>(key_tile)];
    const Real* data =
        packed_.data() + kv_head * size_ + places_[static_cast<std::size_t>(key_tile)];
    return transposed_ ? Panels{data, s_.head_dim, simd::padded(simd::kernels(), last - first)}
                       : Panels{data, last - first, s_.padded_dim};
  }

 private:
  const Sizes& s_;
  const AttentionPlan& plan_;
  bool transposed_;
  std::vector<Index> places_;  // of the tiles of one head
  Index size_ = 0;             // of one head
  Tensor packed_;
};

/// A buffer that starts on a cache line; contents undefined.
class Scratch {
 public:
  explicit Scratch(Index size) : tensor_({std::max<Index>(1, size)}) {}
  Real* data() { return tensor_.data(); }

 private:
  Tensor tensor_;
};

/// Rows [begin, end) of a tile, and the columns [first, cols) that any of them sees.
struct Band {
  Index begin, end;
  Index first;   // column, at a panel's start
  Index cols;    // of the last row, the one that sees furthest
  Index padded;  // to whole vectors
  Index rows() const { return end - begin; }
};
/// Calls f(band) for the bands of a tile: one where every row sees all keys, else kBand rows each.
template <class F>
void for_bands(const Visibility& seen, F&& f) {
  const Index step = seen.uniform() ? seen.rows() : kBand;
  for (Index r = 0; r < seen.rows(); r += step) {
    const Index end = std::min(seen.rows(), r + step);
    // Positions rise: the first row sees back furthest, the last one ahead.
    const Index first = seen[r].begin / simd::kernels().panel * simd::kernels().panel;
    const Index cols = seen[end - 1].end;
    if (cols > first) f(Band{r, end, first, cols, simd::padded(simd::kernels(), cols)});
  }
}

/// rows[n, depth] times the columns [first, padded) of `keys`, into those columns of a row of
/// scores.
void product_of_band(const Rows& rows, Index depth, Panels keys, const Band& band, Real* scores) {
  keys.data += band.first * keys.rows;  // panels lie one after the other
  keys.columns -= band.first;
  simd::kernels().product(band.rows(), band.padded - band.first, depth,
                          rows.data + band.begin * rows.stride, rows.stride, 1, keys, 0,
                          scores + band.begin * kScoreStride + band.first, kScoreStride, false);
}

/// The scores of a band before the rule: scale q·k (the scale is in the packed keys), soft-capped.
void raw_scores(const AttentionInputs& in, const Sizes& s, const Rows& q, const Band& band,
                Panels keys, Real* scores) {
  product_of_band(q, s.head_dim, keys, band, scores);
  if (in.options.softcap > 0)
    for (Index r = band.begin; r < band.end; ++r)
      simd::kernels().softcap_row(scores + r * kScoreStride + band.first, band.padded - band.first,
                                  in.options.softcap);
}

/// -inf where a row does not see a key, in the band's columns.
void mask_row(const Visible& seen, const Band& band, Real* row) {
  std::fill(row + band.first, row + std::clamp(seen.begin, band.first, band.padded), kMasked);
  std::fill(row + std::max(seen.end, band.first), row + band.padded, kMasked);
}

/// Calls f(tile, number of its key tile) for all that a query tile sees.
template <class F>
void for_key_tiles(const AttentionPlan& plan, const AttentionPlan::QueryTile& queries, F&& f) {
  for (Index i = queries.first_segment; i < queries.end_segment; ++i) {
    const auto [first, last] = plan.segments[static_cast<std::size_t>(i)];
    for (Index key_tile = first; key_tile < last; ++key_tile)
      f(Tile{&plan, queries.begin, queries.end, plan.key_tiles[static_cast<std::size_t>(key_tile)]},
        key_tile);
  }
}

/// Tallies `products` of a band: each multiplies its rows with its keys over head_dim.
void count(const Sizes& s, const Band& band, int products) {
  count_multiply_adds(
      static_cast<std::uint64_t>(band.rows() * (band.cols - band.first) * s.head_dim * products));
}

}  // namespace

void check_attention_inputs(const AttentionInputs& in) {
  check(in.q.rank() == 4 && in.k.rank() == 4 && in.k.shape() == in.v.shape() &&
            in.q.dim(0) == in.k.dim(0) && in.q.dim(1) == in.k.dim(1) &&
            in.q.dim(3) == in.k.dim(3) && in.k.dim(2) > 0 && in.q.dim(2) % in.k.dim(2) == 0,
        "attention: q {}, k {}, v {} do not fit ([batch, seq_len, heads, head_dim], heads a "
        "multiple of the key heads)",
        in.q.shape(), in.k.shape(), in.v.shape());
}

Index AttentionPlan::keys_before(const KeyTile& keys, Index before) const {
  if (tokens.empty())
    return std::clamp<Index>(before - keys.begin % seq_len, 0, keys.end - keys.begin);
  const auto first = tokens.begin() + keys.begin, last = tokens.begin() + keys.end;
  const Index sequence = *first / seq_len * seq_len;  // positions below 0 or past it are its edges
  return std::lower_bound(first, last, sequence + std::clamp<Index>(before, 0, seq_len)) - first;
}

AttentionPlan causal_plan(Index batch, Index seq_len, Index window) {
  AttentionPlan plan{.seq_len = seq_len,
                     .window = window,
                     .key_tiles = {},
                     .segments = {},
                     .query_tiles = {},
                     .tokens = {}};
  if (seq_len == 0) return plan;
  const Index tiles = (seq_len + kTileKeys - 1) / kTileKeys;
  for (Index b = 0; b < batch; ++b)
    for (Index first = 0; first < seq_len; first += kTileKeys)
      plan.key_tiles.push_back(
          {b * seq_len + first, b * seq_len + std::min(seq_len, first + kTileKeys)});
  const Index query_tiles = (seq_len + kTileQueries - 1) / kTileQueries;
  for (Index tile = query_tiles - 1; tile >= 0; --tile) {
    const Index begin = tile * kTileQueries, end = std::min(seq_len, begin + kTileQueries);
    const Index first = window > 0 ? std::max<Index>(0, begin - window + 1) / kTileKeys : 0;
    for (Index b = 0; b < batch; ++b) {
      const auto segment = static_cast<Index>(plan.segments.size());
      plan.segments.push_back({b * tiles + first, b * tiles + (end - 1) / kTileKeys + 1});
      plan.query_tiles.push_back({b * seq_len + begin, b * seq_len + end, segment, segment + 1});
    }
  }
  return plan;
}

Tensor heads_first(const Tensor& lse) { return transpose(Variable(lse), 1, 2).value(); }

AttentionResult tiled_attention(const AttentionInputs& in, const AttentionPlan& plan,
                                const ScoreRule* rule, const AttentionResult* onto) {
  const Sizes s(in);
  AttentionResult result{Tensor(in.q.shape()), Tensor({in.q.dim(0), in.q.dim(1), s.heads})};
  if (result.out.size() == 0) return result;
  const PackedKeys keys(s, plan, in.k, true, in.options.scale), values(s, plan, in.v, false, 1);
  const auto query_tiles = static_cast<Index>(plan.query_tiles.size());
  // What a rule or a plan of positions works out for a tile serves all heads of a task; without
  // one, every head is a task of its own.
  const bool together = rule != nullptr || (!plan.tokens.empty() && query_tiles >= 16);
  const Index group_size = together ? s.heads : 1, groups = s.heads / group_size;
  parallel_chunks(
      groups * query_tiles, 1,
      [&, out = result.out.data(), lse = result.lse.data()](Index task, Index) {
        const simd::Kernels& kernels = simd::kernels();
        const auto& queries = plan.query_tiles[static_cast<std::size_t>(task / groups)];
        const Index first_head = task % groups * group_size, rows = queries.end - queries.begin;
        const auto worker = rule ? rule->worker() : nullptr;
        Scratch scores_buffer(kTileQueries * kScoreStride);
        Scratch sums_buffer(group_size * kTileQueries * (s.padded_dim + 2));
        Real* scores = scores_buffer.data();
        Real* max = sums_buffer.data();               // [group, rows]
        Real* sum = max + group_size * kTileQueries;  // [group, rows]
        Real* acc = sum + group_size * kTileQueries;  // [group, rows, padded_dim]
        std::fill(max, sum, kMasked);
        std::fill(sum, acc + group_size * kTileQueries * s.padded_dim, Real(0));
        if (onto != nullptr)  // a finished result is a sum of one row of weight e^lse
          for (Index g = 0; g < group_size; ++g)
            for (Index r = 0; r < rows; ++r) {
              const Index row = plan.token(queries.begin + r), state = g * kTileQueries + r;
              max[state] = onto->lse[row * s.heads + first_head + g];
              sum[state] = max[state] == kMasked ? Real(0) : Real(1);
              std::copy_n(onto->out.data() + s.q_offset(row, first_head + g), s.head_dim,
                          acc + state * s.padded_dim);
            }
        std::vector<std::vector<Real>> gathered(static_cast<std::size_t>(group_size));
        std::vector<Rows> q;
        for (Index g = 0; g < group_size; ++g)
          q.push_back(rows_of(plan, in.q, queries.begin, queries.end, first_head + g,
                              gathered[static_cast<std::size_t>(g)]));
        Visibility seen;
        for_key_tiles(plan, queries, [&](const Tile& t, Index key_tile) {
          seen.set(t);
          if (worker) worker->begin(t);
          for (Index g = 0; g < group_size; ++g) {
            const Index head = first_head + g;
            for_bands(seen, [&](const Band& band) {
              count(s, band, 2);
              raw_scores(in, s, q[static_cast<std::size_t>(g)], band,
                         keys.tile(head / s.shared, key_tile), scores);
              for (Index r = band.begin; r < band.end; ++r) {
                Real* row = scores + r * kScoreStride;
                if (worker) worker->apply(r, band.first, row);
                mask_row(seen[r], band, row);
                const Index state = g * kTileQueries + r;
                const Real factor = kernels.softmax_row(row + band.first, band.padded - band.first,
                                                        max[state], sum[state]);
                if (factor != 1) {
                  Real* o = acc + state * s.padded_dim;
                  for (Index d = 0; d < s.padded_dim; ++d) o[d] *= factor;
                }
              }
              kernels.product(band.rows(), s.padded_dim, band.cols - band.first,
                              scores + band.begin * kScoreStride + band.first, kScoreStride, 1,
                              values.tile(head / s.shared, key_tile), band.first,
                              acc + (g * kTileQueries + band.begin) * s.padded_dim, s.padded_dim,
                              true);
            });
          }
        });
        for (Index g = 0; g < group_size; ++g)
          for (Index r = 0; r < rows; ++r) {
            const Index row = plan.token(queries.begin + r), state = g * kTileQueries + r;
            const Real inverse =
                sum[state] > 0 ? 1 / sum[state] : Real(0);  // a row without pairs: 0
            Real* o = out + s.q_offset(row, first_head + g);
            for (Index d = 0; d < s.head_dim; ++d) o[d] = acc[state * s.padded_dim + d] * inverse;
            lse[row * s.heads + first_head + g] = max[state] + std::log(sum[state]);
          }
      });
  return result;
}

AttentionGradients tiled_attention_backward(const AttentionInputs& in, const AttentionPlan& plan,
                                            const AttentionResult& result, const Tensor& d_out,
                                            const ScoreRule* rule, WantedGradients wanted) {
  const Sizes s(in);
  const Index rule_size = rule ? rule->grad_size() : 0;
  if (in.q.size() == 0) return {in.q, in.k, in.v, Tensor::zeros({rule_size})};
  AttentionGradients grads;
  if (wanted.q) grads.q = Tensor(in.q.shape());
  const bool want_scores = wanted.q || wanted.k || rule_size > 0;

  // A group of key heads and a share of the query tiles make a task.
  const auto query_tiles = static_cast<Index>(plan.query_tiles.size());
  const bool together = rule != nullptr || !plan.tokens.empty();
  const Index groups = together ? std::min(s.kv_heads, kBackwardHeadGroups) : s.kv_heads;
  const Index shares = std::clamp<Index>((kBackwardTasks + groups - 1) / groups, 1, query_tiles);
  const PackedKeys keys_transposed(s, plan, in.k, true, in.options.scale);
  const PackedKeys values_transposed(s, plan, in.v, true, 1);
  const PackedKeys keys(s, plan, in.k, false, in.options.scale);
  const Index kv_size = s.kv_heads * s.rows * s.padded_dim;  // [kv_heads, rows, padded_dim]
  const auto parts = [&](bool needed) {
    return needed ? Tensor::zeros({shares, kv_size}) : Tensor();
  };
  Tensor dk = parts(wanted.k), dv = parts(wanted.v);
  Tensor d_rule = rule_size > 0 ? Tensor::zeros({shares * groups, rule_size}) : Tensor();

  parallel_chunks(groups * shares, 1, [&](Index task, Index) {
    const simd::Kernels& kernels = simd::kernels();
    const Index share = task / groups, group = task % groups;
    const Index first_head = group * s.kv_heads / groups * s.shared;
    const Index group_size = (group + 1) * s.kv_heads / groups * s.shared - first_head;
    const auto worker = rule ? rule->worker() : nullptr;
    const Index packed_size = kTileQueries * s.padded_dim;  // of one head's query tile
    Scratch tile_buffer(3 * kTileQueries * kScoreStride);
    Scratch group_buffer(group_size * (3 * packed_size + kTileQueries));
    Real* before = tile_buffer.data();
    Real* p = before + kTileQueries * kScoreStride;
    Real* d = p + kTileQueries * kScoreStride;
    Real* packed_q = group_buffer.data();
    Real* packed_dout = packed_q + group_size * packed_size;
    Real* dq = packed_dout + group_size * packed_size;
    Real* delta = dq + group_size * packed_size;
    std::vector<std::vector<Real>> gathered_q(static_cast<std::size_t>(group_size)),
        gathered_dout(gathered_q);
    Visibility seen;

    // Boustrophedon: a task takes a light tile after a heavy one.
    for (Index round = 0; round * shares < query_tiles; ++round) {
      const Index index = round * shares + (round % 2 == 0 ? share : shares - 1 - share);
      if (index >= query_tiles) continue;
      const auto& queries = plan.query_tiles[static_cast<std::size_t>(index)];
      const Index rows = queries.end - queries.begin;
      std::vector<Rows> q, d_o;
      for (Index g = 0; g < group_size; ++g) {
        const auto i = static_cast<std::size_t>(g);
        q.push_back(rows_of(plan, in.q, queries.begin, queries.end, first_head + g, gathered_q[i]));
        d_o.push_back(
            rows_of(plan, d_out, queries.begin, queries.end, first_head + g, gathered_dout[i]));
        kernels.pack(q[i].data, q[i].stride, rows, s.head_dim, 1, packed_q + g * packed_size);
        kernels.pack(d_o[i].data, d_o[i].stride, rows, s.head_dim, 1,
                     packed_dout + g * packed_size);
        for (Index r = 0; r < rows; ++r) {
          const Real* o =
              result.out.data() + s.q_offset(plan.token(queries.begin + r), first_head + g);
          Real sum = 0;
          for (Index c = 0; c < s.head_dim; ++c) sum += o[c] * d_o[i].data[r * d_o[i].stride + c];
          delta[g * kTileQueries + r] = sum;
        }
      }
      std::fill_n(dq, group_size * packed_size, Real(0));
      for_key_tiles(plan, queries, [&](const Tile& t, Index key_tile) {
        seen.set(t);
        if (worker) worker->begin(t);
        for (Index g = 0; g < group_size; ++g) {
          const Index head = first_head + g, kv_head = head / s.shared;
          const Panels dout_panels{packed_dout + g * packed_size, rows, s.padded_dim};
          const Panels q_panels{packed_q + g * packed_size, rows, s.padded_dim};
          const Index part = share * kv_size + (kv_head * s.rows + t.keys.begin) * s.padded_dim;
          for_bands(seen, [&](const Band& band) {
            const Index n = band.rows(), width = band.padded - band.first;
            const Index keys_seen = band.cols - band.first;
            const Index start = band.begin * kScoreStride + band.first;
            const auto i = static_cast<std::size_t>(g);
            count(s, band, 1 + want_scores + wanted.v + wanted.q + wanted.k);
            raw_scores(in, s, q[i], band, keys_transposed.tile(kv_head, key_tile), before);
            if (want_scores)
              product_of_band(d_o[i], s.head_dim, values_transposed.tile(kv_head, key_tile), band,
                              d);
            // P = e^(s - lse);  dS' = P (dO Vᵀ - delta);  through the rule and the soft-cap to dS
            for (Index r = band.begin; r < band.end; ++r) {
              const Real* before_row = before + r * kScoreStride;
              Real* row = p + r * kScoreStride;
              Real* d_row = d + r * kScoreStride;
              std::copy_n(before_row + band.first, width, row + band.first);
              if (worker) worker->apply(r, band.first, row);
              mask_row(seen[r], band, row);
              kernels.exp_row(row + band.first, width,
                              result.lse[plan.token(t.begin + r) * s.heads + head]);
              if (!want_scores) continue;
              kernels.softmax_backward_row(row + band.first, d_row + band.first, width,
                                           delta[g * kTileQueries + r]);
              if (worker) worker->backward(r, band.first, before_row, d_row);
              if (in.options.softcap > 0)
                for (Index c = band.first; c < band.padded; ++c) {
                  const Real capped = before_row[c] / in.options.softcap;
                  d_row[c] *= 1 - capped * capped;
                }
            }
            if (wanted.q)  // dQ += dS K
              kernels.product(n, s.padded_dim, keys_seen, d + start, kScoreStride, 1,
                              keys.tile(kv_head, key_tile), band.first,
                              dq + g * packed_size + band.begin * s.padded_dim, s.padded_dim, true);
            const Index to = part + band.first * s.padded_dim;
            if (wanted.v)  // dV += Pᵀ dO
              kernels.product(keys_seen, s.padded_dim, n, p + start, 1, kScoreStride, dout_panels,
                              band.begin, dv.data() + to, s.padded_dim, true);
            if (wanted.k)  // dK += dSᵀ Q
              kernels.product(keys_seen, s.padded_dim, n, d + start, 1, kScoreStride, q_panels,
                              band.begin, dk.data() + to, s.padded_dim, true);
          });
        }
        if (worker && rule_size > 0)
          worker->finish(d_rule.data() + (share * groups + group) * rule_size);
      });
      if (!wanted.q) continue;
      for (Index g = 0; g < group_size; ++g)
        for (Index r = 0; r < rows; ++r)
          std::copy_n(dq + g * packed_size + r * s.padded_dim, s.head_dim,
                      grads.q.data() + s.q_offset(plan.token(queries.begin + r), first_head + g));
    }
  });

  // The shares' sums, in their order; keys' gradients take the scale here.
  const auto reduce = [&](const Tensor& part, Real factor) {
    if (!part.defined()) return Tensor();
    Tensor sum(in.k.shape());
    parallel_chunks(s.rows, rows_per_chunk(s.kv_stride()),
                    [&, out = sum.data()](Index begin, Index end) {
                      for (Index row = begin; row < end; ++row)
                        for (Index kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
                          const Real* from = part.data() + (kv_head * s.rows + row) * s.padded_dim;
                          Real* to = out + s.kv_offset(plan.token(row), kv_head);
                          for (Index c = 0; c < s.head_dim; ++c) {
                            Real total = from[c];
                            for (Index share = 1; share < shares; ++share)
                              total += from[share * kv_size + c];
                            to[c] = total * factor;
                          }
                        }
                    });
    return sum;
  };
  grads.k = reduce(dk, in.options.scale);
  grads.v = reduce(dv, 1);
  if (rule_size > 0) {
    grads.rule = Tensor({rule_size});
    parallel_chunks(rule_size, kElementChunk, [&, out = grads.rule.data()](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        Real total = d_rule[i];
        for (Index part = 1; part < d_rule.dim(0); ++part) total += d_rule[part * rule_size + i];
        out[i] = total;
      }
    });
  }
  return grads;
}

}  // namespace focus
