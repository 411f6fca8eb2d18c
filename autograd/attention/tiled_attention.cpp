#include "autograd/attention/tiled_attention.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "autograd/attention/online_softmax.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/profile.h"

namespace focus {
namespace {

using namespace tiled;
using Clock = std::chrono::steady_clock;
static_assert(std::is_same_v<Clock::duration, std::chrono::nanoseconds>);

/// Heads that share a gate or a permuted plan are one task, unless there are too few query
/// tiles for that: then they come in blocks, so that there are about so many tasks.
constexpr Index kForwardTasks = 16;

/// Query tiles that a forward task does one after the other: where each of the runs begins, and the
/// end of the last. Tiles that begin with the same keys go together where tasks gather these
/// themselves.
std::vector<Index> query_runs(const AttentionPlan& plan) {
  if (!plan.runs.empty()) return plan.runs;
  constexpr Index kLongest = 4;
  const bool gathers = !plan.tokens.empty() && !plan.packs_ahead;
  const auto first_keys = [&](const AttentionPlan::QueryTile& tile) {
    const auto segments = plan.segments_of(tile);
    return segments.empty() ? Index{-1} : segments[0].begin;
  };
  std::vector<Index> runs;
  for (std::size_t i = 0; i < plan.query_tiles.size(); ++i) {
    const auto tile = static_cast<Index>(i);
    const bool continues = gathers && i > 0 && tile - runs.back() < kLongest &&
                           first_keys(plan.query_tiles[i]) == first_keys(plan.query_tiles[i - 1]);
    if (!continues) runs.push_back(tile);
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
        k_(reader(job.keys, block_)),
        v_(reader(job.values, block_)),
        buffer_(kKeys * kQueries),
        softmax_(job.in, s_, block_, TileProducts(job.in.options.bf16)) {}

  void run(const AttentionPlan::QueryTile& tile) {
    if (job_.merges && tile.first_segment == tile.end_segment) return;
    softmax_.begin(job_.plan, tile.begin, tile.end);
    for_key_tiles(job_.plan, tile,
                  [&](Index key_tile) { step(pair_of_tiles(job_.plan, tile, key_tile)); });
    if (!job_.merges) return softmax_.end(job_.result);
    const auto start = job_.times_merge ? Clock::now() : Clock::time_point();
    softmax_.merge_into(job_.result);
    if (job_.times_merge) job_.merge_time += (Clock::now() - start).count();
  }

 private:
  void step(const AttentionTile& t) {
    const AttentionOptions& options = job_.in.options;
    Real* scores = buffer_.data();  // [keys, queries]
    seen_.set(t);
    k_.go_to(t, seen_.end());
    v_.go_to(t, seen_.end());
    const Real* gate = worker_ ? worker_->gate(t) : nullptr;
    for (Index g = 0; g < block_.count; ++g) {
      const Index kv_head = s_.kv_head_of(block_.first + g);
      tally(s_, seen_, t.rows(), 2);
      products(s_, seen_, k_, kv_head, softmax_.queries(g), scores);
      if (options.softcap > 0) soft_cap(seen_, options.softcap, scores);
      softmax_.add_scores(g, seen_, scores, gate, gate_use_);
      job_.dropout.apply(t, seen_, block_.first + g, scores);
      softmax_.add_values(g, seen_, scores, v_.panels(kv_head));
    }
  }

  Job& job_;
  const Sizes& s_;
  const HeadBlock block_;
  const std::unique_ptr<ScoreRule::Worker> worker_;
  const simd::GateUse gate_use_;
  Visibility seen_;
  TiledKeys::Reader k_, v_;
  Scratch buffer_;
  OnlineSoftmax softmax_;
};

AttentionPlan plan_of(const Variable& q, const AttentionOptions& options) {
  if (!options.documents) return causal_plan(q.dim(0), q.dim(1), options.sliding_window);
  const std::vector<Index>& starts = *options.documents;
  check(q.dim(0) == 1 && starts.size() >= 2 && starts.front() == 0 && starts.back() == q.dim(1) &&
            std::ranges::is_sorted(starts, std::less_equal()),
        "attention: document offsets in one row must increase from 0 to its {} tokens, the rows "
        "are {}",
        q.dim(1), q.dim(0));
  return document_plan(starts, options.sliding_window);
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
  const TileProducts products(in.options.bf16);
  Job job{.in = in,
          .plan = plan,
          .rule = rule,
          .merges = merges,
          .result = result,
          .s = s,
          .dropout = TileDropout(in),
          .keys = TiledKeys(s, plan, in.k, {.left = true, .right = false}, products),
          .values = TiledKeys(s, plan, in.v, {.left = false, .right = true}, products),
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
    for (Index tile = runs[run]; tile < runs[run + 1]; ++tile) task.run(plan.query_tiles[tile]);
  });
  if (job.times_merge)
    profile_split("merge", 1e-9 * static_cast<double>(job.merge_time) / omp_get_max_threads());
}

Variable attention_with_rule(const char* op, const Variable& q, const Variable& k,
                             const Variable& v, const Variable& rule_input,
                             const AttentionOptions& options,
                             std::shared_ptr<const ScoreRule> rule) {
  const AttentionInputs inputs{q.value(), k.value(), v.value(), options};
  check_attention_inputs(inputs);
  const auto plan = std::make_shared<const AttentionPlan>(plan_of(q, options));
  const AttentionResult result = tiled_attention(inputs, *plan, rule.get());
  return Variable::from_op(
      op, result.out, {q, k, v, rule_input},
      [inputs, plan, result, rule = std::move(rule), rule_shape = rule_input.shape()](
          const Tensor& d_out, Grads grads) {
        const WantedGradients wanted{grads[0].wanted(), grads[1].wanted(), grads[2].wanted()};
        const AttentionGradients d =
            tiled_attention_backward(inputs, *plan, result, d_out, rule.get(), wanted);
        if (wanted.q) grads[0].add(d.q);
        if (wanted.k) grads[1].add(d.k);
        if (wanted.v) grads[2].add(d.v);
        if (grads[3].wanted()) grads[3].add(d.rule.reshape(rule_shape));
      });
}

Variable attention(const Variable& q, const Variable& k, const Variable& v,
                   const AttentionOptions& options) {
  return attention_with_rule("attention", q, k, v, {}, options, nullptr);
}

}  // namespace focus
