#include "autograd/tiled_attention.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "autograd/check.h"
#include "autograd/dropout_mask.h"
#include "autograd/gemm.h"
#include "autograd/parallel.h"
#include "autograd/profile.h"
#include "autograd/tiled_rows.h"

namespace focus {
namespace {

using simd::Panels;
using namespace tiled;
using Clock = std::chrono::steady_clock;
static_assert(std::is_same_v<Clock::duration, std::chrono::nanoseconds>);

constexpr Index kQueries = AttentionPlan::kQueries;
constexpr Index kKeys = AttentionPlan::kKeys;
/// Heads that share a gate or a plan of positions are one task, unless there are too few query
/// tiles for that: then they come in groups, so that there are about so many tasks.
constexpr Index kForwardTasks = 16;
/// Backward deals its query tiles to at least about so many tasks. Where heads and independent
/// parts of the plan are too few, tasks share key and value gradients: each has its own, summed in
/// a fixed order. A constant, so that bits do not depend on the thread count.
constexpr Index kBackwardTasks = 8;
/// Heads that share a gate in backward come in at most so many groups.
constexpr Index kBackwardHeadGroups = 4;
constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

/// Zeros, by all threads.
Tensor zeros(const Shape& shape) {
  Tensor tensor(shape);
  parallel_chunks(tensor.size(), kElementChunk, [out = tensor.data()](Index begin, Index end) {
    std::fill(out + begin, out + end, Real(0));
  });
  return tensor;
}

/// A buffer that starts on a cache line; contents undefined.
class Scratch {
 public:
  explicit Scratch(Index size) : tensor_({std::max<Index>(1, size)}) {}
  Real* data() { return tensor_.data(); }

 private:
  Tensor tensor_;
};

/// scores [keys, queries] of the bands of a tile: their keys' rows times their queries' columns.
void products(const Sizes& s, const Visibility& seen, const TiledKeys::Reader& keys, Index kv_head,
              Panels queries, Real* scores) {
  const simd::Kernels& kernels = simd::kernels();
  for (Index column = 0; column < s.head_dim; column += kernels.panel) {
    const Rows rows = keys.rows(kv_head, column);
    const Index depth = std::min(kernels.panel, s.head_dim - column);
    for (const KeyBand& band : seen.bands()) {
      queries.first_column = band.first_query;
      kernels.product(band.end - band.begin, band.end_query - band.first_query, depth,
                      rows.data + band.begin * rows.stride, rows.stride, 1, queries, column,
                      scores + band.begin * kQueries + band.first_query, kQueries, column > 0);
    }
  }
}

/// scores = cap tanh(scores / cap) in the bands of a tile.
void soft_cap(const Visibility& seen, Real cap, Real* scores) {
  for (const KeyBand& band : seen.bands())
    for (Index key = band.begin; key < band.end; ++key)
      simd::kernels().softcap_row(scores + key * kQueries + band.first_query,
                                  band.end_query - band.first_query, cap);
}

/// out[queries, head_dim] += weightsᵀ X for the keys that each vector of queries sees.
/// weights [keys, queries]
void weighted_sum(const Visibility& seen, Index queries, const Real* weights, const Panels& x,
                  Index padded_dim, Real* out) {
  const simd::Kernels& kernels = simd::kernels();
  for (Index begin = 0; begin < queries;) {
    // Vectors of queries that see the same keys go together.
    const simd::KeySpan span = seen.span(begin / kernels.vector, false);
    Index end = begin + kernels.vector;
    for (; end < queries; end += kernels.vector) {
      const simd::KeySpan next = seen.span(end / kernels.vector, false);
      if (next.begin != span.begin || next.end != span.end) break;
    }
    end = std::min(end, queries);
    if (span.end > span.begin)
      kernels.product(end - begin, padded_dim, span.end - span.begin,
                      weights + span.begin * kQueries + begin, 1, kQueries, x, span.begin,
                      out + begin * padded_dim, padded_dim, true);
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
      row[static_cast<std::size_t>(r)] =
          ((token / seq_len_ * heads_ + head) * seq_len_ + token % seq_len_) * seq_len_;
    }
    for (const KeyBand& band : seen.bands())
      for (Index key = band.begin; key < band.end; ++key) {
        const Index position = tile.plan->token(tile.keys.begin + key) % seq_len_;
        for (Index r = band.first_query; r < std::min(band.end_query, tile.rows()); ++r)
          x[key * kQueries + r] *= mask_.factor(row[static_cast<std::size_t>(r)] + position);
      }
  }

 private:
  DropoutMask mask_;
  Index seq_len_, heads_;
};

/// Calls f(tile) for every key tile that a query tile sees.
template <class F>
void for_key_tiles(const AttentionPlan& plan, const AttentionPlan::QueryTile& queries, F&& f) {
  for (Index i = queries.first_segment; i < queries.end_segment; ++i) {
    const auto [first, last] = plan.segments[static_cast<std::size_t>(i)];
    for (Index key_tile = first; key_tile < last; ++key_tile)
      f(AttentionTile{&plan, queries.begin, queries.end,
                      plan.key_tiles[static_cast<std::size_t>(key_tile)]});
  }
}

/// Tallies `products` of a tile: each multiplies keys with queries over head_dim.
void count(const Sizes& s, const Visibility& seen, Index queries, int products) {
  Index pairs = 0;
  for (const KeyBand& band : seen.bands())
    pairs += (band.end - band.begin) * (std::min(band.end_query, queries) - band.first_query);
  count_multiply_adds(static_cast<std::uint64_t>(pairs * s.head_dim * products));
}

/// The heads of a task: a group of key heads with the query heads that share them.
struct HeadGroup {
  HeadGroup(const Sizes& s, Index group, Index groups)
      : first((s.first_kv_head + group * s.kv_heads / groups) * s.shared),
        count((s.first_kv_head + (group + 1) * s.kv_heads / groups) * s.shared - first) {}
  Index first, count;  // query heads
};

TiledKeys::Reader reader(const TiledKeys& keys, const Sizes& s, const HeadGroup& group) {
  return {keys, s.kv_head_of(group.first), group.count / s.shared};
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

Tensor heads_first(const Tensor& lse) { return transpose(Variable(lse), 1, 2).value(); }

AttentionResult tiled_attention(const AttentionInputs& in, const AttentionPlan& plan,
                                const ScoreRule* rule) {
  AttentionResult result{Tensor(in.q.shape()), Tensor({in.q.dim(0), in.q.dim(1), in.q.dim(2)})};
  tiled_attention(in, plan, rule, Into::assign, {0, in.k.dim(2)}, result);
  return result;
}

void tiled_attention(const AttentionInputs& in, const AttentionPlan& plan, const ScoreRule* rule,
                     Into into, HeadRange heads, AttentionResult& result) {
  const Sizes s(in, heads);
  const bool merges = into == Into::add;
  if (result.out.size() == 0 || (merges && plan.segments.empty())) return;
  const TileDropout dropout(in);
  const TiledKeys keys(s, plan, in.k, false), values(s, plan, in.v, true);
  const auto query_tiles = static_cast<Index>(plan.query_tiles.size());
  const bool together = rule != nullptr || !plan.tokens.empty();
  const Index groups =
      together ? std::clamp<Index>(kForwardTasks / query_tiles, 1, s.kv_heads) : s.kv_heads;
  // The merge of two results is timed apart, where someone profiles: nanoseconds of all threads.
  const bool times_merge = merges && profiling();
  std::atomic<std::int64_t> merge_time{0};
  parallel_chunks(
      groups * query_tiles, 1,
      [&, out = result.out.data(), lse = result.lse.data()](Index task, Index) {
        const simd::Kernels& kernels = simd::kernels();
        // Group by group: a group's keys stay in the cache while its queries go by.
        const auto& queries = plan.query_tiles[static_cast<std::size_t>(task % query_tiles)];
        if (merges && queries.first_segment == queries.end_segment) return;
        const HeadGroup group(s, task / query_tiles, groups);
        const Index rows = queries.end - queries.begin;
        const auto worker = rule ? rule->worker() : nullptr;
        const Index padded_rows = simd::padded(kernels, rows);
        const Index packed_size = s.head_dim * kQueries, acc_size = apart(kQueries * s.padded_dim);
        Scratch buffer(kKeys * kQueries + kQueries +
                       group.count * (packed_size + 2 * kQueries + acc_size));
        Real* scores = buffer.data();                    // [keys, queries]
        Real* factor = scores + kKeys * kQueries;        // [queries]
        Real* packed = factor + kQueries;                // [group, head_dim, queries]
        Real* max = packed + group.count * packed_size;  // [group, queries]
        Real* sum = max + group.count * kQueries;        // [group, queries]
        Real* acc = sum + group.count * kQueries;        // [group, queries, padded_dim]
        std::fill(max, sum, kMasked);
        std::fill(sum, acc + group.count * acc_size, Real(0));
        const HeadRows q(plan, in.q, queries.begin, queries.end, group.first, group.count);
        for (Index g = 0; g < group.count; ++g)
          kernels.pack_transposed(q[g].data, q[g].stride, rows, s.head_dim, in.options.scale,
                                  packed + g * packed_size);
        if (merges) {  // a finished result is a sum of one row of weight e^lse
          const auto start = times_merge ? Clock::now() : Clock::time_point();
          gather_rows(
              plan, queries.begin, queries.end,
              {out + s.q_offset(0, group.first), s.heads * s.head_dim, group.count, s.head_dim},
              acc, s.padded_dim, acc_size);
          for (Index r = 0; r < rows; ++r) {
            const Index row = plan.token(queries.begin + r);
            for (Index g = 0; g < group.count; ++g) {
              const Real weight = lse[row * s.heads + group.first + g];
              max[g * kQueries + r] = weight;
              sum[g * kQueries + r] = weight == kMasked ? Real(0) : Real(1);
            }
          }
          if (times_merge) merge_time += (Clock::now() - start).count();
        }
        Visibility seen;
        TiledKeys::Reader k = reader(keys, s, group), v = reader(values, s, group);
        for_key_tiles(plan, queries, [&](const AttentionTile& t) {
          seen.set(t);
          k.go_to(t, seen.end());
          v.go_to(t, seen.end());
          const Real* gate = worker ? worker->gate(t) : nullptr;
          for (Index g = 0; g < group.count; ++g) {
            const Index kv_head = s.kv_head_of(group.first + g);
            count(s, seen, rows, 2);
            products(s, seen, k, kv_head, {packed + g * packed_size, s.head_dim, padded_rows},
                     scores);
            if (in.options.softcap > 0) soft_cap(seen, in.options.softcap, scores);
            for (Index r = 0; r < padded_rows; r += kernels.vector) {
              const simd::KeySpan span = seen.span(r / kernels.vector, false);
              if (span.begin == span.end) continue;
              const Index state = g * kQueries + r;
              kernels.softmax_column({.scores = scores + r,
                                      .stride = kQueries,
                                      .span = span,
                                      .first = seen.first() + r,
                                      .last = seen.last() + r,
                                      .gate = gate ? gate + r : nullptr,
                                      .gate_multiplies = rule && rule->multiplies()},
                                     max + state, sum + state, factor + r);
              for (Index i = r; i < std::min(rows, r + kernels.vector); ++i) {
                if (factor[i] == 1) continue;
                Real* o = acc + g * acc_size + i * s.padded_dim;
                kernels.scale_row(o, factor[i], s.padded_dim, o, false);
              }
            }
            dropout.apply(t, seen, group.first + g, scores);
            weighted_sum(seen, rows, scores, v.panels(kv_head), s.padded_dim, acc + g * acc_size);
          }
        });
        // lse = max + log(sum), into the packed queries' place.
        for (Index g = 0; g < group.count; ++g)
          kernels.log_row(sum + g * kQueries, packed + g * kQueries, padded_rows, 0);
        for (Index r = 0; r < rows; ++r)
          for (Index g = 0; g < group.count; ++g) {
            const Index row = plan.token(queries.begin + r), head = group.first + g;
            const Index state = g * kQueries + r;
            const bool any = sum[state] > 0;  // a row without pairs: 0, of weight 0
            const Real inverse = any ? 1 / sum[state] : Real(0);
            const Real* from = acc + g * acc_size + r * s.padded_dim;
            kernels.scale_row(from, inverse, s.head_dim, out + s.q_offset(row, head), false);
            lse[row * s.heads + head] = any ? max[state] + packed[state] : kMasked;
          }
      });
  if (times_merge)
    profile_split("merge", 1e-9 * static_cast<double>(merge_time) / omp_get_max_threads());
}

AttentionGradients tiled_attention_backward(const AttentionInputs& in, const AttentionPlan& plan,
                                            const AttentionResult& result, const Tensor& d_out,
                                            const ScoreRule* rule, WantedGradients wanted,
                                            AttentionGradients onto) {
  const Sizes s(in);
  const Index rule_size = rule ? rule->grad_size() : 0;
  if (in.q.size() == 0) return {in.q, in.k, in.v, Tensor::zeros({rule_size})};
  const TileDropout dropout(in);
  AttentionGradients grads = std::move(onto);
  const bool adds_q = grads.q.defined();
  if (wanted.q && !adds_q) grads.q = zeros(in.q.shape());
  const bool want_scores = wanted.q || wanted.k || rule_size > 0;

  // A group of key heads and a share of a part's query tiles make a task.
  const std::vector<std::vector<Index>> parts = plan.independent_parts();
  const auto num_parts = static_cast<Index>(parts.size());
  std::size_t longest = 1;
  for (const auto& part : parts) longest = std::max(longest, part.size());
  const bool together = rule != nullptr || !plan.tokens.empty();
  const Index groups = together ? std::min(s.kv_heads, kBackwardHeadGroups) : s.kv_heads;
  const Index shares = std::clamp<Index>(kBackwardTasks / std::max<Index>(1, groups * num_parts), 1,
                                         static_cast<Index>(longest));
  const TiledKeys keys(s, plan, in.k, wanted.q), values(s, plan, in.v, false);
  const Index kv_size = s.kv_heads * s.rows * s.padded_dim;  // [kv_heads, rows, padded_dim]
  Tensor dk = wanted.k ? zeros({shares, kv_size}) : Tensor();
  Tensor dv = wanted.v ? zeros({shares, kv_size}) : Tensor();
  Tensor d_rule = rule_size > 0 ? zeros({shares * groups, rule_size}) : Tensor();

  parallel_chunks(num_parts * shares * groups, 1, [&](Index task, Index) {
    const simd::Kernels& kernels = simd::kernels();
    const auto& part = parts[static_cast<std::size_t>(task / groups / shares)];
    const Index share = task / groups % shares, group_index = task % groups;
    const HeadGroup group(s, group_index, groups);
    const auto worker = rule ? rule->worker() : nullptr;
    const Index tile_size = kKeys * kQueries, packed_size = kQueries * s.padded_dim;
    const Index transposed_size = s.head_dim * kQueries;
    Scratch buffer(3 * tile_size +
                   group.count * (3 * packed_size + 2 * transposed_size + 2 * kQueries));
    Real* p = buffer.data();               // [keys, queries]
    Real* d = p + tile_size;               // [keys, queries]
    Real* d_gate = d + tile_size;          // [keys, queries]
    Real* q_columns = d_gate + tile_size;  // [group, head_dim, queries]
    Real* dout_columns = q_columns + group.count * transposed_size;
    Real* q_panels = dout_columns + group.count * transposed_size;  // [group, queries, padded_dim]
    Real* dout_panels = q_panels + group.count * packed_size;
    Real* dq = dout_panels + group.count * packed_size;  // [group, queries, padded_dim]
    Real* delta = dq + group.count * packed_size;        // [group, queries]
    Real* lse = delta + group.count * kQueries;          // [group, queries]
    std::fill(delta, lse + group.count * kQueries, Real(0));
    Visibility seen;
    TiledKeys::Reader k = reader(keys, s, group), v = reader(values, s, group);
    Tensor scattered;  // [keys, padded_dim]: gradients of copied keys

    // Boustrophedon: a task takes a light tile after a heavy one.
    const auto tiles = static_cast<Index>(part.size());
    for (Index round = 0; round * shares < tiles; ++round) {
      const Index index = round * shares + (round % 2 == 0 ? share : shares - 1 - share);
      if (index >= tiles) continue;
      const auto& queries =
          plan.query_tiles[static_cast<std::size_t>(part[static_cast<std::size_t>(index)])];
      const Index rows = queries.end - queries.begin, padded_rows = simd::padded(kernels, rows);
      {
        const HeadRows q(plan, in.q, queries.begin, queries.end, group.first, group.count);
        const HeadRows o(plan, result.out, queries.begin, queries.end, group.first, group.count);
        const HeadRows d_o(plan, d_out, queries.begin, queries.end, group.first, group.count);
        for (Index g = 0; g < group.count; ++g) {
          kernels.pack_transposed(q[g].data, q[g].stride, rows, s.head_dim, in.options.scale,
                                  q_columns + g * transposed_size);
          kernels.pack_transposed(d_o[g].data, d_o[g].stride, rows, s.head_dim, 1,
                                  dout_columns + g * transposed_size);
          if (wanted.k)
            kernels.pack(q[g].data, q[g].stride, rows, s.head_dim, in.options.scale,
                         q_panels + g * packed_size);
          if (wanted.v)
            kernels.pack(d_o[g].data, d_o[g].stride, rows, s.head_dim, 1,
                         dout_panels + g * packed_size);
          for (Index r = 0; r < rows; ++r) {
            const Real* o_row = o[g].data + r * o[g].stride;
            const Real* d_row = d_o[g].data + r * d_o[g].stride;
            delta[g * kQueries + r] = kernels.dot_row(o_row, d_row, s.head_dim);
            lse[g * kQueries + r] =
                result.lse[plan.token(queries.begin + r) * s.heads + group.first + g];
          }
        }
      }
      std::fill_n(dq, group.count * packed_size, Real(0));
      for_key_tiles(plan, queries, [&](const AttentionTile& t) {
        seen.set(t);
        k.go_to(t, seen.end());
        if (want_scores) v.go_to(t, seen.end());
        const Real* gate = worker ? worker->gate(t) : nullptr;
        const bool gate_grad = gate != nullptr && rule_size > 0;
        // to[keys] += weights X for a head, weights [keys, queries], X packed by queries.
        const auto key_gradients = [&](const Real* weights, const Real* x, Index kv_head,
                                       Tensor& to) {
          Real* head = to.data() + share * kv_size + kv_head * s.rows * s.padded_dim;
          const bool copied = t.copied_keys();
          if (copied && !scattered.defined()) scattered = Tensor({kKeys * s.padded_dim});
          for (const KeyBand& band : seen.bands()) {
            const Index n = band.end - band.begin;
            const Index depth = std::min(band.end_query, rows) - band.first_query;
            kernels.product(
                n, s.padded_dim, depth, weights + band.begin * kQueries + band.first_query,
                kQueries, 1, {x, rows, s.padded_dim}, band.first_query,
                copied ? scattered.data() : head + (t.keys.begin + band.begin) * s.padded_dim,
                s.padded_dim, !copied);
            for (Index i = 0; copied && i < n; ++i)
              kernels.scale_row(scattered.data() + i * s.padded_dim, 1, s.padded_dim,
                                head + plan.own_row(t.keys.begin + band.begin + i) * s.padded_dim,
                                true);
          }
        };
        if (gate_grad) std::fill_n(d_gate, t.cols() * kQueries, Real(0));
        for (Index g = 0; g < group.count; ++g) {
          const Index kv_head = s.kv_head_of(group.first + g);
          count(s, seen, rows, 1 + want_scores + wanted.v + wanted.q + wanted.k);
          products(s, seen, k, kv_head, {q_columns + g * transposed_size, s.head_dim, padded_rows},
                   p);
          if (in.options.softcap > 0) soft_cap(seen, in.options.softcap, p);
          if (want_scores) {
            products(s, seen, v, kv_head,
                     {dout_columns + g * transposed_size, s.head_dim, padded_rows}, d);
            dropout.apply(t, seen, group.first + g, d);
          }
          // P = e^(s - lse);  dS' = P (dO Vᵀ - delta);  through the gate and the soft-cap to dS
          for (Index r = 0; r < padded_rows; r += kernels.vector)
            kernels.softmax_column_backward({.scores = p + r,
                                             .stride = kQueries,
                                             .span = seen.span(r / kernels.vector, true),
                                             .first = seen.first() + r,
                                             .last = seen.last() + r,
                                             .gate = gate ? gate + r : nullptr,
                                             .gate_multiplies = rule && rule->multiplies()},
                                            lse + g * kQueries + r, delta + g * kQueries + r,
                                            in.options.softcap, want_scores ? d + r : nullptr,
                                            gate_grad ? d_gate + r : nullptr);
          if (wanted.q)  // dQ += dS K
            weighted_sum(seen, rows, d, k.panels(kv_head), s.padded_dim, dq + g * packed_size);
          if (wanted.v) {  // dV += Pᵀ dO
            dropout.apply(t, seen, group.first + g, p);
            key_gradients(p, dout_panels + g * packed_size, kv_head, dv);
          }
          if (wanted.k)  // dK += dSᵀ Q
            key_gradients(d, q_panels + g * packed_size, kv_head, dk);
        }
        if (gate_grad)
          worker->backward(d_gate, d_rule.data() + (share * groups + group_index) * rule_size);
      });
      if (!wanted.q) continue;
      for (Index r = 0; r < rows; ++r)
        for (Index g = 0; g < group.count; ++g) {
          const Real* from = dq + g * packed_size + r * s.padded_dim;
          Real* to = grads.q.data() + s.q_offset(plan.token(queries.begin + r), group.first + g);
          kernels.scale_row(from, in.options.scale, s.head_dim, to, adds_q);
        }
    }
  });

  // The shares' sums, in their order.
  const auto reduce = [&](const Tensor& part, Tensor& sum) {
    if (!part.defined()) return;
    const bool adds = sum.defined();
    if (!adds) sum = Tensor(in.k.shape());
    parallel_chunks(s.rows, rows_per_chunk(s.kv_heads * s.head_dim),
                    [&, out = sum.data()](Index begin, Index end) {
                      for (Index row = begin; row < end; ++row)
                        for (Index kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
                          const Real* from = part.data() + (kv_head * s.rows + row) * s.padded_dim;
                          Real* to = out + s.kv_offset(plan.token(row), kv_head);
                          for (Index share = 0; share < shares; ++share)
                            simd::kernels().scale_row(from + share * kv_size, 1, s.head_dim, to,
                                                      adds || share > 0);
                        }
                    });
  };
  reduce(dk, grads.k);
  reduce(dv, grads.v);
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
