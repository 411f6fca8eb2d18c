#include "autograd/attention/tiled_attention.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "autograd/attention/tiled_steps.h"
#include "autograd/check.h"
#include "autograd/parallel.h"
#include "autograd/profile.h"

namespace focus {
namespace {

using namespace tiled;
using Clock = std::chrono::steady_clock;
static_assert(std::is_same_v<Clock::duration, std::chrono::nanoseconds>);

/// Heads that share a gate or a permuted plan are one task, unless there are too few query
/// tiles for that: then they come in blocks, so that there are about so many tasks.
constexpr Index kForwardTasks = 16;
constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

/// Query tiles that a forward task does one after the other: where each of the runs begins, and the
/// end of the last. Tiles that begin with the same keys go together where tasks gather these
/// themselves.
std::vector<Index> query_runs(const AttentionPlan& plan) {
  constexpr Index kLongest = 4;
  const bool gathers = !plan.tokens.empty() && !plan.packs_ahead;
  const auto first_keys = [&](const AttentionPlan::QueryTile& tile) {
    return tile.first_segment < tile.end_segment
               ? plan.segments[static_cast<std::size_t>(tile.first_segment)].begin
               : Index{-1};
  };
  std::vector<Index> runs;
  for (std::size_t i = 0; i < plan.query_tiles.size(); ++i) {
    const auto tile = static_cast<Index>(i);
    const bool goes_on = gathers && i > 0 && tile - runs.back() < kLongest &&
                         first_keys(plan.query_tiles[i]) == first_keys(plan.query_tiles[i - 1]);
    if (!goes_on) runs.push_back(tile);
  }
  runs.push_back(static_cast<Index>(plan.query_tiles.size()));
  return runs;
}

/// What all tasks share.
struct Job {
  const AttentionInputs& in;
  const AttentionPlan& plan;
  const ScoreRule* rule;
  bool merges;  // `result` holds that over other pairs
  AttentionResult& result;
  Sizes s;
  TileDropout dropout;
  TiledKeys keys, values;
  bool times_merge;
  std::atomic<std::int64_t> merge_time{0};  // nanoseconds of all threads
};

/// A block of key heads and a run of query tiles.
class Task {
 public:
  Task(Job& job, const HeadBlock& block)
      : job_(job),
        s_(job.s),
        block_(block),
        worker_(job.rule ? job.rule->worker() : nullptr),
        gate_use_(job.rule ? job.rule->gate_use() : simd::GateUse::score),
        k_(reader(job.keys, s_, block_)),
        v_(reader(job.values, s_, block_)),
        packed_size_(s_.head_dim * kQueries),
        acc_size_(stride_of_heads(kQueries * s_.padded_dim)),
        buffer_(kKeys * kQueries + kQueries +
                block_.count * (packed_size_ + 2 * kQueries + acc_size_)),
        scores_(buffer_.data()),
        factor_(scores_ + kKeys * kQueries),
        packed_(factor_ + kQueries),
        max_(packed_ + block_.count * packed_size_),
        sum_(max_ + block_.count * kQueries),
        acc_(sum_ + block_.count * kQueries) {}

  void run(const AttentionPlan::QueryTile& tile) {
    if (job_.merges && tile.first_segment == tile.end_segment) return;
    begin(tile);
    for_key_tiles(job_.plan, tile,
                  [&](Index key_tile) { step(pair_of_tiles(job_.plan, tile, key_tile)); });
    end(tile);
  }

 private:
  void begin(const AttentionPlan::QueryTile& tile) {
    rows_ = tile.end - tile.begin;
    padded_rows_ = simd::padded(kernels_, rows_);
    std::fill(max_, sum_, kMasked);
    std::fill(sum_, acc_, Real(0));
    sums_.clear();
    for (Index g = 0; g < block_.count; ++g) sums_.push_back({acc_ + g * acc_size_});
    const HeadRows q(job_.plan, job_.in.q, tile.begin, tile.end, block_.first, block_.count);
    for (Index g = 0; g < block_.count; ++g)
      kernels_.pack_transposed(q[g].data, q[g].stride, rows_, s_.head_dim, job_.in.options.scale,
                               packed_ + g * packed_size_);
    if (!job_.merges) return;
    const auto start = job_.times_merge ? Clock::now() : Clock::time_point();
    go_on_from_result(tile);
    if (job_.times_merge) job_.merge_time += (Clock::now() - start).count();
  }

  /// A finished result is a sum of one row of weight e^lse.
  void go_on_from_result(const AttentionPlan::QueryTile& tile) {
    const AttentionPlan& plan = job_.plan;
    gather_rows(plan, tile.begin, tile.end,
                {job_.result.out.data() + s_.q_offset(0, block_.first), s_.heads * s_.head_dim,
                 block_.count, s_.head_dim},
                acc_, s_.padded_dim, acc_size_);
    for (Index g = 0; g < block_.count; ++g) {
      sums_[static_cast<std::size_t>(g)].begun = ~std::uint64_t{0};
      const Real* lse = lse_of(tile, g);
      for (Index r = 0; r < rows_; ++r) {
        const Real weight = lse[plan.token(tile.begin + r)];
        max_[g * kQueries + r] = weight;
        sum_[g * kQueries + r] = weight == kMasked ? Real(0) : Real(1);
      }
    }
  }

  void step(const AttentionTile& t) {
    const AttentionOptions& options = job_.in.options;
    seen_.set(t);
    k_.go_to(t, seen_.end());
    v_.go_to(t, seen_.end());
    const Real* gate = worker_ ? worker_->gate(t) : nullptr;
    for (Index g = 0; g < block_.count; ++g) {
      const Index kv_head = s_.kv_head_of(block_.first + g);
      tally(s_, seen_, rows_, 2);
      products(s_, seen_, k_, kv_head, {packed_ + g * packed_size_, s_.head_dim, padded_rows_},
               scores_);
      if (options.softcap > 0) soft_cap(seen_, options.softcap, scores_);
      for (Index r = 0; r < padded_rows_; r += kernels_.vector) {
        const simd::KeySpan span = seen_.span(r / kernels_.vector, false);
        if (span.begin == span.end) continue;
        const Index state = g * kQueries + r;
        kernels_.softmax_column({.scores = scores_ + r,
                                 .stride = kQueries,
                                 .span = span,
                                 .first = seen_.first() + r,
                                 .last = seen_.last() + r,
                                 .gate = gate ? gate + r : nullptr,
                                 .gate_use = gate_use_},
                                max_ + state, sum_ + state, factor_ + r);
      }
      job_.dropout.apply(t, seen_, block_.first + g, scores_);
      weighted_sum(seen_, rows_, scores_, v_.panels(kv_head), s_.padded_dim, factor_,
                   sums_[static_cast<std::size_t>(g)]);
    }
  }

  /// A row without pairs: 0, of weight 0. Else lse = max + log(sum).
  void end(const AttentionPlan::QueryTile& tile) {
    const AttentionPlan& plan = job_.plan;
    for (Index g = 0; g < block_.count; ++g) {
      Real* log_sum = packed_;  // the packed queries have served
      kernels_.log_row(sum_ + g * kQueries, log_sum, padded_rows_, 0);
      Real* lse = lse_of(tile, g);
      for (Index r = 0; r < rows_; ++r) {
        const Index state = g * kQueries + r;
        lse[plan.token(tile.begin + r)] = sum_[state] == 0 ? kMasked : max_[state] + log_sum[r];
      }
    }
    for (Index r = 0; r < rows_; ++r)
      kernels_.divide_rows(
          block_.count, s_.head_dim, acc_ + r * s_.padded_dim, acc_size_, sum_ + r, kQueries,
          job_.result.out.data() + s_.q_offset(plan.token(tile.begin + r), block_.first),
          s_.head_dim);
  }

  /// The log-sum-exps of a head, by token.
  Real* lse_of(const AttentionPlan::QueryTile& tile, Index g) const {
    return job_.result.lse.data() + s_.lse_offset(job_.plan.token(tile.begin), block_.first + g);
  }

  const simd::Kernels& kernels_ = simd::kernels();
  Job& job_;
  const Sizes& s_;
  const HeadBlock block_;
  const std::unique_ptr<ScoreRule::Worker> worker_;
  const simd::GateUse gate_use_;
  Visibility seen_;
  TiledKeys::Reader k_, v_;
  const Index packed_size_, acc_size_;
  Scratch buffer_;
  Real* scores_;  // [keys, queries]
  Real* factor_;  // [queries]
  Real* packed_;  // [heads, head_dim, queries]
  Real* max_;     // [heads, queries]
  Real* sum_;     // [heads, queries]
  Real* acc_;     // [heads, queries, padded_dim]
  // Of the query tile under way:
  Index rows_ = 0, padded_rows_ = 0;
  std::vector<QuerySum> sums_;  // of each head
};

}  // namespace

void check_attention_inputs(const AttentionInputs& in) {
  check(in.q.rank() == 4 && in.k.rank() == 4 && in.k.shape() == in.v.shape() &&
            in.q.dim(0) == in.k.dim(0) && in.q.dim(1) == in.k.dim(1) &&
            in.q.dim(3) == in.k.dim(3) && in.k.dim(2) > 0 && in.q.dim(2) % in.k.dim(2) == 0,
        "attention: q {}, k {}, v {} do not fit ([batch, seq_len, heads, head_dim], heads a "
        "multiple of the key heads)",
        in.q.shape(), in.k.shape(), in.v.shape());
}

AttentionResult tiled_attention(const AttentionInputs& in, const AttentionPlan& plan,
                                const ScoreRule* rule) {
  AttentionResult result{Tensor(in.q.shape()), Tensor({in.q.dim(0), in.q.dim(2), in.q.dim(1)})};
  tiled_attention(in, plan, rule, Into::assign, {0, in.k.dim(2)}, result);
  return result;
}

void tiled_attention(const AttentionInputs& in, const AttentionPlan& plan, const ScoreRule* rule,
                     Into into, HeadRange heads, AttentionResult& result) {
  const bool merges = into == Into::add;
  if (result.out.size() == 0 || (merges && plan.segments.empty())) return;
  const Sizes s(in, heads);
  Job job{.in = in,
          .plan = plan,
          .rule = rule,
          .merges = merges,
          .result = result,
          .s = s,
          .dropout = TileDropout(in),
          .keys = TiledKeys(s, plan, in.k, false),
          .values = TiledKeys(s, plan, in.v, true),
          // The merge of two results is timed apart, where someone profiles.
          .times_merge = merges && profiling()};
  const std::vector<Index> runs = query_runs(plan);
  const auto num_runs = static_cast<Index>(runs.size()) - 1;
  const bool together = rule != nullptr || !plan.tokens.empty();
  const Index blocks =
      together ? std::clamp<Index>(kForwardTasks / num_runs, 1, s.kv_heads) : s.kv_heads;
  parallel_chunks(blocks * num_runs, 1, [&](Index number, Index) {
    // Block by block: a block's keys stay in the cache while its queries go by.
    Task task(job, HeadBlock(s, number / num_runs, blocks));
    const auto run = static_cast<std::size_t>(number % num_runs);
    for (Index tile = runs[run]; tile < runs[run + 1]; ++tile)
      task.run(plan.query_tiles[static_cast<std::size_t>(tile)]);
  });
  if (job.times_merge)
    profile_split("merge", 1e-9 * static_cast<double>(job.merge_time) / omp_get_max_threads());
}

}  // namespace focus
