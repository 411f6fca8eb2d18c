#include <algorithm>

#include "autograd/attention/backward_queries.h"
#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"

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

/// Zeros, written by all threads.
Tensor zeros(const Shape& shape) {
  Tensor tensor(shape);
  parallel_chunks(tensor.size(), kElementChunk, [out = tensor.data()](Index begin, Index end) {
    std::fill(out + begin, out + end, Real(0));
  });
  return tensor;
}

/// What all tasks share.
struct BackwardJob {
  const AttentionInputs& in;
  const AttentionPlan& plan;
  const AttentionResult& result;
  const Tensor& d_out;
  const ScoreRule* rule;
  WantedGradients wanted;
  Sizes s;
  TileDropout dropout;
  TileProducts products;
  TiledKeys keys, values;
  Index rule_size;
  bool want_scores;
  Index head_blocks = 1, shares = 1, resident_tiles = 1;
  bool adds_q = false;
  bool in_place = false;  // dk and dv are like k and v, else
  Tensor dq{};            // like q
  Tensor dk{}, dv{};      // [shares, kv_heads, rows, padded_dim]
  Tensor d_rule{};        // [shares * head_blocks, rule_size]
};

/// A block of key heads and a share of a part's query tiles.
class BackwardTask {
 public:
  BackwardTask(BackwardJob& job, Index block, Index share)
      : job_(job),
        s_(job.s),
        block_(s_, block, job.head_blocks),
        share_(share),
        worker_(job.rule ? job.rule->worker() : nullptr),
        gate_use_(job.rule ? job.rule->gate_use() : simd::GateUse::score),
        k_(reader(job.keys, block_)),
        v_(reader(job.values, block_)),
        buffer_(3 * head_stride(kKeys * kQueries)),
        p_(buffer_.data()),
        d_(p_ + head_stride(kKeys * kQueries)),
        d_gate_(d_ + head_stride(kKeys * kQueries)),
        queries_(job.in, s_, block_, job.products) {
    if (job.d_rule.defined())
      d_rule_ = job.d_rule.data() + (share * job.head_blocks + block) * job.rule_size;
  }

  /// A query tile and those of some key tiles that it sees.
  void run(const AttentionPlan::QueryTile& tile, AttentionPlan::Segment keys) {
    bool begun = false;
    for_key_tiles(job_.plan, tile, [&](Index key_tile) {
      if (key_tile < keys.begin || key_tile >= keys.end) return;
      if (!begun)
        queries_.begin(job_.plan, tile.begin, tile.end, job_.result, job_.d_out, job_.wanted);
      begun = true;
      step(pair_of_tiles(job_.plan, tile, key_tile));
    });
    if (begun && job_.wanted.q) queries_.end(job_.dq, job_.adds_q);
  }

 private:
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
      tally(s_, seen_, t.rows(),
            1 + job_.want_scores + job_.wanted.v + job_.wanted.q + job_.wanted.k);
      products(s_, seen_, k_, kv_head, queries_.queries(g), p_);
      if (in.options.softcap > 0) soft_cap(seen_, in.options.softcap, p_);
      if (job_.want_scores) {
        products(s_, seen_, v_, kv_head, queries_.d_outs(g), d_);
        job_.dropout.apply(t, seen_, block_.first + g, d_);
      }
      queries_.through_softmax(g, seen_, in.options.softcap, gate, gate_use_, p_,
                               job_.want_scores ? d_ : nullptr, gate_grad ? d_gate_ : nullptr);
      if (job_.wanted.q) queries_.add_gradient(g, seen_, d_, k_.panels(kv_head));
      if (job_.wanted.v) {  // dV += Pᵀ dO
        job_.dropout.apply(t, seen_, block_.first + g, p_);
        key_gradients(t, p_, queries_.d_out_rows(g), kv_head, job_.dv);
      }
      if (job_.wanted.k)  // dK += dSᵀ Q
        key_gradients(t, d_, queries_.query_rows(g), kv_head, job_.dk);
    }
    if (gate_grad) worker_->backward(d_gate_, d_rule_);
  }

  /// to[keys] += weights X for a head, weights [keys, queries], X packed by queries.
  void key_gradients(const AttentionTile& t, const Real* weights, const simd::Panels& x,
                     Index kv_head, Tensor& to) {
    const Index row_size = job_.in_place ? s_.all_kv_heads * s_.head_dim : s_.padded_dim;
    Real* head =
        to.data() + (job_.in_place ? s_.kv_offset(0, kv_head)
                                   : (share_ * s_.kv_heads + kv_head) * s_.rows * row_size);
    const bool copied = t.copied_keys();
    if (copied && !scattered_.defined()) scattered_ = Tensor({kKeys * s_.padded_dim});
    for (const KeyBand& band : seen_.bands()) {
      const Index n = band.end - band.begin;
      const Index depth = std::min(band.end_query, x.rows) - band.first_query;
      job_.products.rows_times(
          n, depth, weights + band.begin * kQueries + band.first_query, x, band.first_query,
          s_.padded_dim, copied ? scattered_.data() : head + (t.keys.begin + band.begin) * row_size,
          copied ? s_.padded_dim : row_size, !copied);
      for (Index i = 0; copied && i < n; ++i)
        kernels_.scale_row(scattered_.data() + i * s_.padded_dim, 1, s_.padded_dim,
                           head + job_.plan.own_row(t.keys.begin + band.begin + i) * row_size,
                           true);
    }
  }

  const simd::Kernels& kernels_ = simd::kernels();
  BackwardJob& job_;
  const Sizes& s_;
  const HeadBlock block_;
  const Index share_;
  const std::unique_ptr<ScoreRule::Worker> worker_;
  const simd::GateUse gate_use_;
  Visibility seen_;
  TiledKeys::Reader k_, v_;
  Scratch buffer_;
  Real* p_;       // [keys, queries]
  Real* d_;       // [keys, queries]
  Real* d_gate_;  // [keys, queries]
  BackwardQueries queries_;
  Real* d_rule_ = nullptr;
  Tensor scattered_;  // [keys, padded_dim]: gradients of copied keys
};

/// From the first to the last key tile that any of the query tiles sees.
AttentionPlan::Segment key_tiles_of(const AttentionPlan& plan, const std::vector<Index>& tiles) {
  AttentionPlan::Segment all{static_cast<Index>(plan.key_tiles.size()), 0};
  for (const Index tile : tiles) {
    for (const auto& [first, last] : plan.segments_of(plan.query_tiles[tile]))
      all = {std::min(all.begin, first), std::max(all.end, last)};
  }
  return all;
}

/// Rows of a run. A tile of queries that see no further back than this, its own rows counted, has
/// its keys in its run or in the one before.
constexpr Index kRunRows = 512;

/// Where all query tiles see but a few keys before them, runs of them, in their order: those of
/// even number have no key in common, and those of odd number neither. Else nothing.
std::vector<std::vector<Index>> runs_of_short_windows(const AttentionPlan& plan, Index rows) {
  if (!plan.tokens.empty() || plan.gap != 0 || rows < 2 * kRunRows) return {};
  std::vector<std::vector<Index>> runs((rows + kRunRows - 1) / kRunRows);
  for (std::size_t i = 0; i < plan.query_tiles.size(); ++i) {
    const AttentionPlan::QueryTile& tile = plan.query_tiles[i];
    for (const AttentionPlan::Segment& segment : plan.segments_of(tile))
      if (plan.key_tile(segment.begin).begin + kRunRows < tile.end) return {};
    runs[tile.begin / kRunRows].push_back(static_cast<Index>(i));
  }
  return runs;
}

/// Decides on tasks, and on which keys they keep in the cache. `adds_q`: queries have a gradient
/// already.
void deal(BackwardJob& job, const std::vector<std::vector<Index>>& parts, bool adds_q) {
  const AttentionPlan& plan = job.plan;
  const Sizes& s = job.s;
  std::size_t longest = 1;
  for (const auto& part : parts) longest = std::max(longest, part.size());
  const Index block_heads = !plan.tokens.empty()  ? kGatherHeads
                            : job.rule != nullptr ? kGateHeads
                                                  : 1;
  job.head_blocks = (s.kv_heads + block_heads - 1) / block_heads;
  const auto num_key_tiles = static_cast<Index>(plan.key_tiles.size());
  job.resident_tiles = num_key_tiles;
  if (!job.in_place) {
    const Index tasks = job.head_blocks * static_cast<Index>(parts.size());
    job.shares =
        std::clamp<Index>(kTasks / std::max<Index>(1, tasks), 1, static_cast<Index>(longest));
    if (plan.copies.empty())  // copies are gathered for each query tile anyway
      job.resident_tiles =
          std::max<Index>(1, kResident * job.head_blocks / (s.kv_heads * s.padded_dim * kKeys));
  }
  job.adds_q = adds_q || job.resident_tiles < num_key_tiles;
}

/// Every `step`th part from `first` on.
void run_parts(BackwardJob& job, const std::vector<std::vector<Index>>& parts, Index first,
               Index step) {
  const Index count = (static_cast<Index>(parts.size()) - first + step - 1) / step;
  parallel_chunks(count * job.shares * job.head_blocks, 1, [&](Index number, Index) {
    const Index of_parts = first + number / job.head_blocks / job.shares * step;
    const auto& part = parts[of_parts];
    const Index share = number / job.head_blocks % job.shares;
    BackwardTask task(job, number % job.head_blocks, share);
    const auto tiles = static_cast<Index>(part.size());
    const auto [begin, end] = key_tiles_of(job.plan, part);
    for (Index keys = begin; keys < end; keys += job.resident_tiles)
      // Boustrophedon: a task takes a light tile after a heavy one.
      for (Index round = 0; round * job.shares < tiles; ++round) {
        const Index index = round * job.shares + (round % 2 == 0 ? share : job.shares - 1 - share);
        if (index >= tiles) continue;
        const Index tile = part[index];
        task.run(job.plan.query_tiles[tile], {keys, keys + job.resident_tiles});
      }
  });
}

/// The shares' sums, in their order, added to `sum` where that is defined.
void reduce(const BackwardJob& job, const Tensor& shares, Tensor& sum) {
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
                                            const AttentionGradients& onto,
                                            std::optional<HeadRange> some_heads) {
  const HeadRange heads = some_heads.value_or(HeadRange{0, in.k.dim(2)});
  check(heads.count == in.k.dim(2) ||
            ((!wanted.q || onto.q.defined()) && (!wanted.k || onto.k.defined()) &&
             (!wanted.v || onto.v.defined())),
        "attention backward: the gradients of some heads are added to those of all");
  const Sizes s(in, heads);
  const Index rule_size = rule ? rule->grad_size() : 0;
  if (in.q.size() == 0) return {in.q, in.k, in.v, Tensor::zeros({rule_size})};
  const TileProducts products(in.options.bf16);
  BackwardJob job{.in = in,
                  .plan = plan,
                  .result = result,
                  .d_out = d_out,
                  .rule = rule,
                  .wanted = wanted,
                  .s = s,
                  .dropout = TileDropout(in),
                  .products = products,
                  .keys = TiledKeys(s, plan, in.k, {.left = true, .right = wanted.q}, products),
                  .values = TiledKeys(s, plan, in.v, {.left = true, .right = false}, products),
                  .rule_size = rule_size,
                  .want_scores = wanted.q || wanted.k || rule_size > 0};
  std::vector<std::vector<Index>> parts;
  // Keys that few query tiles see get their gradients where these belong; the rest in a buffer of
  // their own, head by head, that is added up in the end.
  if (rule == nullptr && s.padded_dim == s.head_dim && !onto.k.defined() && !onto.v.defined())
    parts = runs_of_short_windows(plan, s.rows);
  job.in_place = !parts.empty();
  if (!job.in_place) parts = plan.independent_parts();
  deal(job, parts, onto.q.defined());
  const Shape of_keys =
      job.in_place ? in.k.shape() : Shape{job.shares, s.kv_heads * s.rows * s.padded_dim};
  if (wanted.q)  // in place every row is written
    job.dq = onto.q.defined() ? onto.q : job.in_place ? Tensor(in.q.shape()) : zeros(in.q.shape());
  if (wanted.k) job.dk = zeros(of_keys);
  if (wanted.v) job.dv = zeros(of_keys);
  if (rule_size > 0) job.d_rule = zeros({job.shares * job.head_blocks, rule_size});

  if (job.in_place) {
    run_parts(job, parts, 0, 2);
    run_parts(job, parts, 1, 2);
    return {.q = job.dq, .k = job.dk, .v = job.dv, .rule = {}};
  }
  run_parts(job, parts, 0, 1);
  AttentionGradients grads{.q = job.dq, .k = onto.k, .v = onto.v, .rule = {}};
  reduce(job, job.dk, grads.k);
  reduce(job, job.dv, grads.v);
  if (rule_size > 0) grads.rule = sum_of_rows(job.d_rule);
  return grads;
}

}  // namespace focus
