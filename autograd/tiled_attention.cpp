#include "autograd/tiled_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/check.h"
#include "autograd/gemm.h"
#include "autograd/parallel.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

using simd::Panels;

constexpr Index kTileQueries = 96;  // a multiple of the micro-kernel's rows
constexpr Index kTileKeys = 256;
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
      : batch(in.q.dim(0)),
        seq_len(in.q.dim(1)),
        heads(in.q.dim(2)),
        kv_heads(in.k.dim(2)),
        head_dim(in.q.dim(3)),
        shared(heads / kv_heads),
        window(in.options.sliding_window),
        padded_dim(simd::padded(simd::kernels(), head_dim)),
        query_tiles((seq_len + kTileQueries - 1) / kTileQueries),
        key_tiles((seq_len + kTileKeys - 1) / kTileKeys) {}

  Index batch, seq_len, heads, kv_heads, head_dim;
  Index shared;  // query heads to a key head
  Index window;
  Index padded_dim;
  Index query_tiles, key_tiles;

  Index q_stride() const { return heads * head_dim; }
  Index kv_stride() const { return kv_heads * head_dim; }
  Index q_offset(Index b, Index row, Index head) const {
    return ((b * seq_len + row) * heads + head) * head_dim;
  }
  Index kv_offset(Index b, Index row, Index kv_head) const {
    return ((b * seq_len + row) * kv_heads + kv_head) * head_dim;
  }
  Index first_visible(Index query) const {
    return window > 0 ? std::max<Index>(0, query - window + 1) : 0;
  }
  AttentionTile tile(Index b, Index query_tile, Index key_tile) const {
    AttentionTile t;
    t.batch = b;
    t.begin = query_tile * kTileQueries;
    t.end = std::min(seq_len, t.begin + kTileQueries);
    t.first_key = key_tile * kTileKeys;
    t.end_key = std::min(t.end, t.first_key + kTileKeys);
    return t;
  }
  Index first_key_tile(Index query_tile) const {
    return first_visible(query_tile * kTileQueries) / kTileKeys;
  }
  Index last_key_tile(Index query_tile) const {
    return (std::min(seq_len, (query_tile + 1) * kTileQueries) - 1) / kTileKeys;
  }
};

/// The keys of a tile that row r may see: columns [begin, end).
struct Visible {
  Index begin, end;
};
Visible visible(const Sizes& s, const AttentionTile& t, Index r) {
  const Index query = t.begin + r;
  return {std::clamp<Index>(s.first_visible(query) - t.first_key, 0, t.cols()),
          std::clamp<Index>(query + 1 - t.first_key, 0, t.cols())};
}

/// A key or value matrix of every head, packed key tile by key tile for products over it.
class PackedKeys {
 public:
  /// transposed: panels of depth head_dim whose columns are keys; else of depth keys.
  PackedKeys(const Sizes& s, const Tensor& x, bool transposed, Real factor)
      : s_(s), transposed_(transposed) {
    const simd::Kernels& kernels = simd::kernels();
    tile_size_ =
        transposed ? s.head_dim * simd::padded(kernels, kTileKeys) : kTileKeys * s.padded_dim;
    packed_ = Tensor({s.batch * s.kv_heads * s.key_tiles, tile_size_});
    parallel_chunks(packed_.dim(0), 4, [&, out = packed_.data()](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index kv_head = i / s.key_tiles % s.kv_heads, b = i / s.key_tiles / s.kv_heads;
        const Index first = i % s.key_tiles * kTileKeys;
        const Index keys = std::min(kTileKeys, s.seq_len - first);
        const Real* source = x.data() + s.kv_offset(b, first, kv_head);
        if (transposed)
          kernels.pack_transposed(source, s.kv_stride(), keys, s.head_dim, factor,
                                  out + i * tile_size_);
        else
          kernels.pack(source, s.kv_stride(), keys, s.head_dim, factor, out + i * tile_size_);
      }
    });
  }

  Panels tile(Index b, Index kv_head, Index key_tile) const {
    const Index i = (b * s_.kv_heads + kv_head) * s_.key_tiles + key_tile;
    const Index keys = std::min(kTileKeys, s_.seq_len - key_tile * kTileKeys);
    const Real* data = packed_.data() + i * tile_size_;
    return transposed_ ? Panels{data, s_.head_dim, simd::padded(simd::kernels(), keys)}
                       : Panels{data, keys, s_.padded_dim};
  }

 private:
  const Sizes& s_;
  bool transposed_;
  Index tile_size_ = 0;
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

/// Rows [begin, end) of a tile, and the columns that any of them sees.
struct Band {
  Index begin, end;
  Index cols;    // of the last row, the one that sees most
  Index padded;  // to whole vectors
};
/// Calls f(band) for the bands of a tile: one where every row sees all keys, else kBand rows each.
template <class F>
void for_bands(const Sizes& s, const AttentionTile& t, F&& f) {
  const bool diagonal = t.begin + 1 < t.end_key;
  const Index step = diagonal ? kBand : t.rows();
  for (Index r = 0; r < t.rows(); r += step) {
    Band band{r, std::min(t.rows(), r + step), 0, 0};
    band.cols = visible(s, t, band.end - 1).end;
    band.padded = simd::padded(simd::kernels(), band.cols);
    if (band.cols > 0) f(band);
  }
}

/// The scores of a band before the rule: scale q·k (the scale is in the packed keys), soft-capped.
void raw_scores(const AttentionInputs& in, const Sizes& s, const AttentionTile& t, const Band& band,
                Index head, Panels keys, Real* scores) {
  const simd::Kernels& kernels = simd::kernels();
  kernels.product(band.end - band.begin, band.padded, s.head_dim,
                  in.q.data() + s.q_offset(t.batch, t.begin + band.begin, head), s.q_stride(), 1,
                  keys, 0, scores + band.begin * kScoreStride, kScoreStride, false);
  if (in.options.softcap > 0)
    for (Index r = band.begin; r < band.end; ++r)
      kernels.softcap_row(scores + r * kScoreStride, band.padded, in.options.softcap);
}

/// -inf where row r does not see a key, up to the band's padded width.
void mask_row(const Visible& seen, const Band& band, Real* row) {
  std::fill(row, row + std::min(seen.begin, band.padded), kMasked);
  std::fill(row + seen.end, row + band.padded, kMasked);
}

/// Heads that one task takes through a tile together.
struct HeadGroup {
  Index begin, end;
};

/// Tallies `products` of a band: each multiplies its rows with its keys over head_dim.
void count(const Sizes& s, const Band& band, int products) {
  count_multiply_adds(
      static_cast<std::uint64_t>((band.end - band.begin) * band.cols * s.head_dim * products));
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

AttentionResult tiled_attention(const AttentionInputs& in, const ScoreRule* rule) {
  const Sizes s(in);
  AttentionResult result{Tensor(in.q.shape()), Tensor({s.batch, s.heads, s.seq_len})};
  if (result.out.size() == 0) return result;
  const PackedKeys keys(s, in.k, true, in.options.scale), values(s, in.v, false, 1);
  // A rule's tile serves all heads of its task; without one, every head is a task of its own.
  const Index group_size = rule ? s.heads : 1, groups = s.heads / group_size;
  parallel_chunks(
      s.batch * groups * s.query_tiles, 1,
      [&, out = result.out.data(), lse = result.lse.data()](Index task, Index) {
        const simd::Kernels& kernels = simd::kernels();
        // Heavy tiles (the last queries) first, so that no thread ends with one alone.
        const Index query_tile = s.query_tiles - 1 - task / (s.batch * groups);
        const Index b = task % s.batch, group = task / s.batch % groups;
        const Index first_head = group * group_size;
        const auto worker = rule ? rule->worker() : nullptr;
        Scratch scores_buffer(kTileQueries * kScoreStride);
        Scratch sums_buffer(group_size * kTileQueries * (s.padded_dim + 2));
        Real* scores = scores_buffer.data();
        Real* max = sums_buffer.data();               // [group, rows]
        Real* sum = max + group_size * kTileQueries;  // [group, rows]
        Real* acc = sum + group_size * kTileQueries;  // [group, rows, padded_dim]
        std::fill(max, sum, kMasked);
        std::fill(sum, acc + group_size * kTileQueries * s.padded_dim, Real(0));
        for (Index key_tile = s.first_key_tile(query_tile); key_tile <= s.last_key_tile(query_tile);
             ++key_tile) {
          const AttentionTile t = s.tile(b, query_tile, key_tile);
          if (worker) worker->begin(t);
          for (Index g = 0; g < group_size; ++g) {
            const Index kv_head = (first_head + g) / s.shared;
            const Panels key_panels = keys.tile(b, kv_head, key_tile),
                         value_panels = values.tile(b, kv_head, key_tile);
            for_bands(s, t, [&](const Band& band) {
              count(s, band, 2);
              raw_scores(in, s, t, band, first_head + g, key_panels, scores);
              for (Index r = band.begin; r < band.end; ++r) {
                Real* row = scores + r * kScoreStride;
                if (worker) worker->apply(r, row);
                mask_row(visible(s, t, r), band, row);
                const Index state = g * kTileQueries + r;
                const Real factor = kernels.softmax_row(row, band.padded, max[state], sum[state]);
                if (factor != 1) {
                  Real* o = acc + state * s.padded_dim;
                  for (Index d = 0; d < s.padded_dim; ++d) o[d] *= factor;
                }
              }
              kernels.product(band.end - band.begin, s.padded_dim, band.cols,
                              scores + band.begin * kScoreStride, kScoreStride, 1, value_panels, 0,
                              acc + (g * kTileQueries + band.begin) * s.padded_dim, s.padded_dim,
                              true);
            });
          }
        }
        const AttentionTile t = s.tile(b, query_tile, 0);
        for (Index g = 0; g < group_size; ++g)
          for (Index r = 0; r < t.rows(); ++r) {
            const Index state = g * kTileQueries + r;
            const Real inverse = 1 / sum[state];
            Real* o = out + s.q_offset(b, t.begin + r, first_head + g);
            for (Index d = 0; d < s.head_dim; ++d) o[d] = acc[state * s.padded_dim + d] * inverse;
            lse[(b * s.heads + first_head + g) * s.seq_len + t.begin + r] =
                max[state] + std::log(sum[state]);
          }
      });
  return result;
}

AttentionGradients tiled_attention_backward(const AttentionInputs& in,
                                            const AttentionResult& result, const Tensor& d_out,
                                            const ScoreRule* rule, WantedGradients wanted) {
  const Sizes s(in);
  const Index rule_size = rule ? rule->grad_size() : 0;
  AttentionGradients grads;
  if (wanted.q) grads.q = Tensor(in.q.shape());
  const bool want_scores = wanted.q || wanted.k || rule_size > 0;
  if (in.q.size() == 0) return {in.q, in.k, in.v, Tensor::zeros({rule_size})};

  // A group of key heads and a share of the query tiles make a task.
  const Index groups = rule ? std::min(s.kv_heads, kBackwardHeadGroups) : s.kv_heads;
  const Index shares = std::clamp<Index>(
      (kBackwardTasks + s.batch * groups - 1) / (s.batch * groups), 1, s.query_tiles);
  const PackedKeys keys_transposed(s, in.k, true, in.options.scale);
  const PackedKeys values_transposed(s, in.v, true, 1);
  const PackedKeys keys(s, in.k, false, in.options.scale);
  const auto parts = [&](bool needed, Index size) {
    return needed && size > 0 ? Tensor::zeros({shares, size}) : Tensor();
  };
  const Index kv_size =
      s.batch * s.kv_heads * s.seq_len * s.padded_dim;  // [batch, kv_heads, seq_len, padded_dim]
  Tensor dk = parts(wanted.k, kv_size), dv = parts(wanted.v, kv_size);
  Tensor d_rule = rule_size > 0 ? Tensor::zeros({shares * groups, rule_size}) : Tensor();

  parallel_chunks(s.batch * groups * shares, 1, [&](Index task, Index) {
    const simd::Kernels& kernels = simd::kernels();
    const Index share = task / (s.batch * groups), b = task % s.batch,
                group = task / s.batch % groups;
    const HeadGroup heads{group * s.kv_heads / groups * s.shared,
                          (group + 1) * s.kv_heads / groups * s.shared};
    const Index group_size = heads.end - heads.begin;
    const auto worker = rule ? rule->worker() : nullptr;
    Scratch tile_buffer(3 * kTileQueries * kScoreStride);
    Real* before = tile_buffer.data();
    Real* p = before + kTileQueries * kScoreStride;
    Real* d = p + kTileQueries * kScoreStride;
    Scratch group_buffer(group_size * kTileQueries * (3 * s.padded_dim + 1));
    Real* packed_q = group_buffer.data();
    Real* packed_dout = packed_q + group_size * kTileQueries * s.padded_dim;
    Real* dq = packed_dout + group_size * kTileQueries * s.padded_dim;
    Real* delta = dq + group_size * kTileQueries * s.padded_dim;

    // Boustrophedon: a task takes a light tile after a heavy one.
    for (Index round = 0; round * shares < s.query_tiles; ++round) {
      const Index index = round * shares + (round % 2 == 0 ? share : shares - 1 - share);
      if (index >= s.query_tiles) continue;
      const Index query_tile = s.query_tiles - 1 - index;
      const AttentionTile queries = s.tile(b, query_tile, 0);
      const Index rows = queries.rows(), packed_size = kTileQueries * s.padded_dim;
      for (Index g = 0; g < group_size; ++g) {
        const Index offset = s.q_offset(b, queries.begin, heads.begin + g);
        kernels.pack(in.q.data() + offset, s.q_stride(), rows, s.head_dim, 1,
                     packed_q + g * packed_size);
        kernels.pack(d_out.data() + offset, s.q_stride(), rows, s.head_dim, 1,
                     packed_dout + g * packed_size);
        for (Index r = 0; r < rows; ++r) {
          Real sum = 0;
          for (Index i = 0; i < s.head_dim; ++i)
            sum += result.out[offset + r * s.q_stride() + i] * d_out[offset + r * s.q_stride() + i];
          delta[g * kTileQueries + r] = sum;
        }
      }
      std::fill_n(dq, group_size * packed_size, Real(0));
      for (Index key_tile = s.first_key_tile(query_tile); key_tile <= s.last_key_tile(query_tile);
           ++key_tile) {
        const AttentionTile t = s.tile(b, query_tile, key_tile);
        if (worker) worker->begin(t);
        for (Index g = 0; g < group_size; ++g) {
          const Index head = heads.begin + g, kv_head = head / s.shared;
          const Panels key_panels = keys_transposed.tile(b, kv_head, key_tile);
          const Panels dout_panels{packed_dout + g * packed_size, rows, s.padded_dim};
          const Panels q_panels{packed_q + g * packed_size, rows, s.padded_dim};
          const Index kv_row =
              ((b * s.kv_heads + kv_head) * s.seq_len + t.first_key) * s.padded_dim;
          // P = e^(s - lse);  dS' = P (dO Vᵀ - delta);  through the rule and the soft-cap to dS
          for_bands(s, t, [&](const Band& band) {
            count(s, band, 1 + want_scores + wanted.v + wanted.q + wanted.k);
            raw_scores(in, s, t, band, head, key_panels, before);
            if (want_scores)
              kernels.product(band.end - band.begin, band.padded, s.head_dim,
                              d_out.data() + s.q_offset(b, t.begin + band.begin, head),
                              s.q_stride(), 1, values_transposed.tile(b, kv_head, key_tile), 0,
                              d + band.begin * kScoreStride, kScoreStride, false);
            for (Index r = band.begin; r < band.end; ++r) {
              Real* row = p + r * kScoreStride;
              std::copy_n(before + r * kScoreStride, band.padded, row);
              if (worker) worker->apply(r, row);
              mask_row(visible(s, t, r), band, row);
              kernels.exp_row(row, band.padded,
                              result.lse[(b * s.heads + head) * s.seq_len + t.begin + r]);
              if (!want_scores) continue;
              Real* d_row = d + r * kScoreStride;
              kernels.softmax_backward_row(row, d_row, band.padded, delta[g * kTileQueries + r]);
              if (worker) worker->backward(r, before + r * kScoreStride, d_row);
              if (in.options.softcap > 0)
                for (Index c = 0; c < band.padded; ++c) {
                  const Real share_of_cap = before[r * kScoreStride + c] / in.options.softcap;
                  d_row[c] *= 1 - share_of_cap * share_of_cap;
                }
            }
            if (wanted.q)  // dQ += dS K
              kernels.product(
                  band.end - band.begin, s.padded_dim, band.cols, d + band.begin * kScoreStride,
                  kScoreStride, 1, keys.tile(b, kv_head, key_tile), 0,
                  dq + (g * kTileQueries + band.begin) * s.padded_dim, s.padded_dim, true);
            // dV += Pᵀ dO,  dK += dSᵀ Q
            if (wanted.v)
              kernels.product(band.cols, s.padded_dim, band.end - band.begin,
                              p + band.begin * kScoreStride, 1, kScoreStride, dout_panels,
                              band.begin, dv.data() + share * kv_size + kv_row, s.padded_dim, true);
            if (wanted.k)
              kernels.product(band.cols, s.padded_dim, band.end - band.begin,
                              d + band.begin * kScoreStride, 1, kScoreStride, q_panels, band.begin,
                              dk.data() + share * kv_size + kv_row, s.padded_dim, true);
          });
        }
        if (worker && rule_size > 0)
          worker->finish(d_rule.data() + (share * groups + group) * rule_size);
      }
      if (!wanted.q) continue;
      for (Index g = 0; g < group_size; ++g)
        for (Index r = 0; r < rows; ++r)
          std::copy_n(dq + (g * kTileQueries + r) * s.padded_dim, s.head_dim,
                      grads.q.data() + s.q_offset(b, queries.begin + r, heads.begin + g));
    }
  });

  // The shares' sums, in their order; keys' gradients take the scale here.
  const auto reduce = [&](const Tensor& shared_parts, Real factor) {
    if (!shared_parts.defined()) return Tensor();
    Tensor sum(in.k.shape());
    parallel_chunks(s.batch * s.seq_len, rows_per_chunk(s.kv_stride()),
                    [&, out = sum.data()](Index begin, Index end) {
                      for (Index row = begin; row < end; ++row)
                        for (Index kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
                          const Index b = row / s.seq_len, i = row % s.seq_len;
                          const Real* part =
                              shared_parts.data() +
                              ((b * s.kv_heads + kv_head) * s.seq_len + i) * s.padded_dim;
                          Real* to = out + s.kv_offset(b, i, kv_head);
                          for (Index c = 0; c < s.head_dim; ++c) {
                            Real total = part[c];
                            for (Index share = 1; share < shares; ++share)
                              total += part[share * kv_size + c];
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
