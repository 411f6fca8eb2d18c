#include <algorithm>

#include "autograd/attention/tiled_attention.h"
#include "autograd/attention/tiled_steps.h"
#include "autograd/parallel.h"

namespace focus {
namespace {

using namespace tiled;

/// Query tiles are dealt to at least about so many tasks. Where heads and independent parts of the
/// plan are too few, tasks share key and value gradients: each has its own, summed in a fixed
/// order. A constant, so that bits do not depend on the thread count.
constexpr Index kTasks = 8;
/// Key heads that share a gate, or what a permuted plan gathers: copies want more room.
constexpr Index kGateHeads = 4, kGatherHeads = 2;
/// Numbers of keys, of all its heads together, that a task goes through with its queries before it
/// turns to other keys: these, their values and the gradients of both stay in the cache.
constexpr Index kResident = Index{1} << 18;

/// Zeros, by all threads.
Tensor zeros(const Shape& shape) {
  Tensor tensor(shape);
  parallel_chunks(tensor.size(), kElementChunk, [out = tensor.data()](Index begin, Index end) {
    std::fill(out + begin, out + end, Real(0));
  });
  return tensor;
}

/// What all tasks share.
struct Job {
  const AttentionInputs& in;
  const AttentionPlan& plan;
  const AttentionResult& result;
  const Tensor& d_out;
  const ScoreRule* rule;
  WantedGradients wanted;
  Sizes s;
  TileDropout dropout;
  TiledKeys keys, values;
  Index rule_size;
  bool want_scores;
  Index head_blocks = 1, shares = 1, resident_tiles = 1;
  bool adds_q = false;
  Tensor dq{};        // like q
  Tensor dk{}, dv{};  // [shares, kv_heads, rows, padded_dim]
  Tensor d_rule{};    // [shares * head_blocks, rule_size]
};

/// A block of key heads and a share of a part's query tiles.
class Task {
 public:
  Task(Job& job, Index block, Index share)
      : job_(job),
        s_(job.s),
        block_(s_, block, job.head_blocks),
        share_(share),
        worker_(job.rule ? job.rule->worker() : nullptr),
        gate_use_(job.rule ? job.rule->gate_use() : simd::GateUse::score),
        k_(reader(job.keys, s_, block_)),
        v_(reader(job.values, s_, block_)),
        packed_size_(stride_of_heads(kQueries * s_.padded_dim)),
        transposed_size_(stride_of_heads(s_.head_dim * kQueries)),
        buffer_(3 * stride_of_heads(kKeys * kQueries) +
                block_.count * (3 * packed_size_ + 2 * transposed_size_ + 2 * kQueries)),
        p_(buffer_.data()),
        d_(p_ + stride_of_heads(kKeys * kQueries)),
        d_gate_(d_ + stride_of_heads(kKeys * kQueries)),
        q_columns_(d_gate_ + stride_of_heads(kKeys * kQueries)),
        dout_columns_(q_columns_ + block_.count * transposed_size_),
        q_panels_(dout_columns_ + block_.count * transposed_size_),
        dout_panels_(q_panels_ + block_.count * packed_size_),
        dq_data_(dout_panels_ + block_.count * packed_size_),
        delta_(dq_data_ + block_.count * packed_size_),
        lse_(delta_ + block_.count * kQueries) {
    std::fill_n(delta_, 2 * block_.count * kQueries, Real(0));
    if (job.d_rule.defined())
      d_rule_ = job.d_rule.data() + (share * job.head_blocks + block) * job.rule_size;
  }

  /// A query tile and those of some key tiles that it sees.
  void run(const AttentionPlan::QueryTile& tile, AttentionPlan::Segment keys) {
    bool begun = false;
    for_key_tiles(job_.plan, tile, [&](Index key_tile) {
      if (key_tile < keys.begin || key_tile >= keys.end) return;
      if (!begun) begin(tile);
      begun = true;
      step(pair_of_tiles(job_.plan, tile, key_tile));
    });
    if (begun) end(tile);
  }

 private:
  void begin(const AttentionPlan::QueryTile& tile) {
    const AttentionPlan& plan = job_.plan;
    rows_ = tile.end - tile.begin;
    padded_rows_ = simd::padded(kernels_, rows_);
    dq_.clear();
    const HeadRows q(plan, job_.in.q, tile.begin, tile.end, block_.first, block_.count);
    const HeadRows o(plan, job_.result.out, tile.begin, tile.end, block_.first, block_.count);
    const HeadRows d_o(plan, job_.d_out, tile.begin, tile.end, block_.first, block_.count);
    const Real scale = job_.in.options.scale;
    for (Index g = 0; g < block_.count; ++g) {
      dq_.push_back({dq_data_ + g * packed_size_});
      kernels_.pack_transposed(q[g].data, q[g].stride, rows_, s_.head_dim, scale,
                               q_columns_ + g * transposed_size_);
      kernels_.pack_transposed(d_o[g].data, d_o[g].stride, rows_, s_.head_dim, 1,
                               dout_columns_ + g * transposed_size_);
      if (job_.wanted.k)
        kernels_.pack(q[g].data, q[g].stride, rows_, s_.head_dim, scale,
                      q_panels_ + g * packed_size_);
      if (job_.wanted.v)
        kernels_.pack(d_o[g].data, d_o[g].stride, rows_, s_.head_dim, 1,
                      dout_panels_ + g * packed_size_);
      const Real* of_head =
          job_.result.lse.data() + s_.lse_offset(plan.token(tile.begin), block_.first + g);
      for (Index r = 0; r < rows_; ++r) {
        delta_[g * kQueries + r] = kernels_.dot_row(o[g].data + r * o[g].stride,
                                                    d_o[g].data + r * d_o[g].stride, s_.head_dim);
        lse_[g * kQueries + r] = of_head[plan.token(tile.begin + r)];
      }
    }
  }

  void step(const AttentionTile& t) {
    const AttentionInputs& in = job_.in;
    seen_.set(t);
    k_.go_to(t, seen_.end());
    if (job_.want_scores) v_.go_to(t, seen_.end());
    const Real* gate = worker_ ? worker_->gate(t) : nullptr;
    const bool gate_grad = gate != nullptr && job_.rule_size > 0;
    if (gate_grad) std::fill_n(d_gate_, t.cols() * kQueries, Real(0));
    for (Index g = 0; g < block_.count; ++g) {
      const Index kv_head = s_.kv_head_of(block_.first + g);
      tally(s_, seen_, rows_, 1 + job_.want_scores + job_.wanted.v + job_.wanted.q + job_.wanted.k);
      products(s_, seen_, k_, kv_head,
               {q_columns_ + g * transposed_size_, s_.head_dim, padded_rows_}, p_);
      if (in.options.softcap > 0) soft_cap(seen_, in.options.softcap, p_);
      if (job_.want_scores) {
        products(s_, seen_, v_, kv_head,
                 {dout_columns_ + g * transposed_size_, s_.head_dim, padded_rows_}, d_);
        job_.dropout.apply(t, seen_, block_.first + g, d_);
      }
      // P = e^(s - lse);  dS' = P (dO Vᵀ - delta);  through the gate and the soft-cap to dS
      for (Index r = 0; r < padded_rows_; r += kernels_.vector)
        kernels_.softmax_column_backward({.scores = p_ + r,
                                          .stride = kQueries,
                                          .span = seen_.span(r / kernels_.vector, true),
                                          .first = seen_.first() + r,
                                          .last = seen_.last() + r,
                                          .gate = gate ? gate + r : nullptr,
                                          .gate_use = gate_use_},
                                         lse_ + g * kQueries + r, delta_ + g * kQueries + r,
                                         in.options.softcap, job_.want_scores ? d_ + r : nullptr,
                                         gate_grad ? d_gate_ + r : nullptr);
      if (job_.wanted.q)  // dQ += dS K
        weighted_sum(seen_, rows_, d_, k_.panels(kv_head), s_.padded_dim, nullptr,
                     dq_[static_cast<std::size_t>(g)]);
      if (job_.wanted.v) {  // dV += Pᵀ dO
        job_.dropout.apply(t, seen_, block_.first + g, p_);
        key_gradients(t, p_, {dout_panels_ + g * packed_size_, rows_, s_.padded_dim}, kv_head,
                      job_.dv);
      }
      if (job_.wanted.k)  // dK += dSᵀ Q
        key_gradients(t, d_, {q_panels_ + g * packed_size_, rows_, s_.padded_dim}, kv_head,
                      job_.dk);
    }
    if (gate_grad) worker_->backward(d_gate_, d_rule_);
  }

  /// to[keys] += weights X for a head, weights [keys, queries], X packed by queries.
  void key_gradients(const AttentionTile& t, const Real* weights, const simd::Panels& x,
                     Index kv_head, Tensor& to) {
    Real* head = to.data() + (share_ * s_.kv_heads + kv_head) * s_.rows * s_.padded_dim;
    const bool copied = t.copied_keys();
    if (copied && !scattered_.defined()) scattered_ = Tensor({kKeys * s_.padded_dim});
    for (const KeyBand& band : seen_.bands()) {
      const Index n = band.end - band.begin;
      const Index depth = std::min(band.end_query, x.rows) - band.first_query;
      kernels_.product(
          n, s_.padded_dim, depth, weights + band.begin * kQueries + band.first_query, kQueries, 1,
          x, band.first_query,
          copied ? scattered_.data() : head + (t.keys.begin + band.begin) * s_.padded_dim,
          s_.padded_dim, !copied);
      for (Index i = 0; copied && i < n; ++i)
        kernels_.scale_row(scattered_.data() + i * s_.padded_dim, 1, s_.padded_dim,
                           head + job_.plan.own_row(t.keys.begin + band.begin + i) * s_.padded_dim,
                           true);
    }
  }

  void end(const AttentionPlan::QueryTile& tile) {
    if (!job_.wanted.q) return;
    for (Index r = 0; r < rows_; ++r)
      for (Index g = 0; g < block_.count; ++g) {
        const QuerySum& dq = dq_[static_cast<std::size_t>(g)];
        if (!dq.has(r / kernels_.vector)) continue;
        const Index token = job_.plan.token(tile.begin + r);
        kernels_.scale_row(dq.data + r * s_.padded_dim, job_.in.options.scale, s_.head_dim,
                           job_.dq.data() + s_.q_offset(token, block_.first + g), job_.adds_q);
      }
  }

  const simd::Kernels& kernels_ = simd::kernels();
  Job& job_;
  const Sizes& s_;
  const HeadBlock block_;
  const Index share_;
  const std::unique_ptr<ScoreRule::Worker> worker_;
  const simd::GateUse gate_use_;
  Visibility seen_;
  TiledKeys::Reader k_, v_;
  const Index packed_size_, transposed_size_;
  Scratch buffer_;
  Real* p_;             // [keys, queries]
  Real* d_;             // [keys, queries]
  Real* d_gate_;        // [keys, queries]
  Real* q_columns_;     // [heads, head_dim, queries]
  Real* dout_columns_;  // likewise
  Real* q_panels_;      // [heads, queries, padded_dim]
  Real* dout_panels_;   // likewise
  Real* dq_data_;       // likewise
  Real* delta_;         // [heads, queries]: what a query's output owes to each weight
  Real* lse_;           // [heads, queries]
  Real* d_rule_ = nullptr;
  Tensor scattered_;  // [keys, padded_dim]: gradients of copied keys
  // Of the query tile under way:
  Index rows_ = 0, padded_rows_ = 0;
  std::vector<QuerySum> dq_;  // of each head
};

/// From the first to the last key tile that any of the query tiles sees.
AttentionPlan::Segment key_tiles_of(const AttentionPlan& plan, const std::vector<Index>& tiles) {
  AttentionPlan::Segment all{static_cast<Index>(plan.key_tiles.size()), 0};
  for (const Index tile : tiles) {
    const auto& queries = plan.query_tiles[static_cast<std::size_t>(tile)];
    for (Index i = queries.first_segment; i < queries.end_segment; ++i) {
      const AttentionPlan::Segment& segment = plan.segments[static_cast<std::size_t>(i)];
      all = {std::min(all.begin, segment.begin), std::max(all.end, segment.end)};
    }
  }
  return all;
}

/// The shares' sums, in their order, added to `sum` where that is defined.
void reduce(const Job& job, const Tensor& shares, Tensor& sum) {
  if (!shares.defined()) return;
  const Sizes& s = job.s;
  const bool adds = sum.defined();
  if (!adds) sum = Tensor(job.in.k.shape());
  parallel_chunks(s.rows, rows_per_chunk(s.kv_heads * s.head_dim),
                  [&, out = sum.data()](Index begin, Index end) {
                    for (Index row = begin; row < end; ++row)
                      for (Index kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
                        const Real* from = shares.data() + (kv_head * s.rows + row) * s.padded_dim;
                        Real* to = out + s.kv_offset(job.plan.token(row), kv_head);
                        for (Index share = 0; share < job.shares; ++share)
                          simd::kernels().scale_row(
                              from + share * s.kv_heads * s.rows * s.padded_dim, 1, s.head_dim, to,
                              adds || share > 0);
                      }
                  });
}

/// The sum of the rows, in their order.
Tensor sum_of_rows(const Tensor& rows) {
  Tensor sum({rows.cols()});
  parallel_chunks(rows.cols(), kElementChunk, [&, out = sum.data()](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      Real total = rows[i];
      for (Index row = 1; row < rows.rows(); ++row) total += rows[row * rows.cols() + i];
      out[i] = total;
    }
  });
  return sum;
}

}  // namespace

AttentionGradients tiled_attention_backward(const AttentionInputs& in, const AttentionPlan& plan,
                                            const AttentionResult& result, const Tensor& d_out,
                                            const ScoreRule* rule, WantedGradients wanted,
                                            AttentionGradients onto) {
  const Sizes s(in);
  const Index rule_size = rule ? rule->grad_size() : 0;
  if (in.q.size() == 0) return {in.q, in.k, in.v, Tensor::zeros({rule_size})};
  Job job{.in = in,
          .plan = plan,
          .result = result,
          .d_out = d_out,
          .rule = rule,
          .wanted = wanted,
          .s = s,
          .dropout = TileDropout(in),
          .keys = TiledKeys(s, plan, in.k, wanted.q),
          .values = TiledKeys(s, plan, in.v, false),
          .rule_size = rule_size,
          .want_scores = wanted.q || wanted.k || rule_size > 0};
  const std::vector<std::vector<Index>> parts = plan.independent_parts();
  const auto num_parts = static_cast<Index>(parts.size());
  std::size_t longest = 1;
  for (const auto& part : parts) longest = std::max(longest, part.size());
  const Index block_heads = !plan.tokens.empty() ? kGatherHeads : rule != nullptr ? kGateHeads : 1;
  job.head_blocks = (s.kv_heads + block_heads - 1) / block_heads;
  job.shares = std::clamp<Index>(kTasks / std::max<Index>(1, job.head_blocks * num_parts), 1,
                                 static_cast<Index>(longest));
  const auto num_key_tiles = static_cast<Index>(plan.key_tiles.size());
  if (plan.copies.empty())  // copies are gathered for each query tile anyway
    job.resident_tiles =
        std::max<Index>(1, kResident * job.head_blocks / (s.kv_heads * s.padded_dim * kKeys));
  else
    job.resident_tiles = num_key_tiles;
  job.adds_q = onto.q.defined() || job.resident_tiles < num_key_tiles;
  if (wanted.q) job.dq = onto.q.defined() ? onto.q : zeros(in.q.shape());
  const Index kv_size = s.kv_heads * s.rows * s.padded_dim;
  if (wanted.k) job.dk = zeros({job.shares, kv_size});
  if (wanted.v) job.dv = zeros({job.shares, kv_size});
  if (rule_size > 0) job.d_rule = zeros({job.shares * job.head_blocks, rule_size});

  parallel_chunks(num_parts * job.shares * job.head_blocks, 1, [&](Index number, Index) {
    const auto& part = parts[static_cast<std::size_t>(number / job.head_blocks / job.shares)];
    const Index share = number / job.head_blocks % job.shares;
    Task task(job, number % job.head_blocks, share);
    const auto tiles = static_cast<Index>(part.size());
    const auto [first, last] = key_tiles_of(plan, part);
    for (Index keys = first; keys < last; keys += job.resident_tiles)
      // Boustrophedon: a task takes a light tile after a heavy one.
      for (Index round = 0; round * job.shares < tiles; ++round) {
        const Index index = round * job.shares + (round % 2 == 0 ? share : job.shares - 1 - share);
        if (index >= tiles) continue;
        const Index tile = part[static_cast<std::size_t>(index)];
        task.run(plan.query_tiles[static_cast<std::size_t>(tile)],
                 {keys, keys + job.resident_tiles});
      }
  });

  AttentionGradients grads{.q = job.dq, .k = onto.k, .v = onto.v, .rule = {}};
  reduce(job, job.dk, grads.k);
  reduce(job, job.dv, grads.v);
  if (rule_size > 0) grads.rule = sum_of_rows(job.d_rule);
  return grads;
}

}  // namespace focus
