#include "autograd/tiled_attention.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "autograd/check.h"
#include "autograd/parallel.h"
#include "autograd/profile.h"
#include "autograd/tiled_steps.h"

namespace focus {
namespace {

using namespace tiled;
using Clock = std::chrono::steady_clock;
static_assert(std::is_same_v<Clock::duration, std::chrono::nanoseconds>);

/// Heads that share a gate or a plan of positions are one task, unless there are too few query
/// tiles for that: then they come in groups, so that there are about so many tasks.
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
  const Sizes s(in, heads);
  const bool merges = into == Into::add;
  if (result.out.size() == 0 || (merges && plan.segments.empty())) return;
  const TileDropout dropout(in);
  const TiledKeys keys(s, plan, in.k, false), values(s, plan, in.v, true);
  const std::vector<Index> runs = query_runs(plan);
  const auto num_runs = static_cast<Index>(runs.size()) - 1;
  const simd::GateUse gate_use = rule != nullptr ? rule->gate_use() : simd::GateUse::score;
  const bool together = rule != nullptr || !plan.tokens.empty();
  const Index groups =
      together ? std::clamp<Index>(kForwardTasks / num_runs, 1, s.kv_heads) : s.kv_heads;
  // The merge of two results is timed apart, where someone profiles: nanoseconds of all threads.
  const bool times_merge = merges && profiling();
  std::atomic<std::int64_t> merge_time{0};
  parallel_chunks(
      groups * num_runs, 1,
      [&, out = result.out.data(), lse = result.lse.data()](Index task, Index) {
        const simd::Kernels& kernels = simd::kernels();
        // Group by group: a group's keys stay in the cache while its queries go by.
        const HeadGroup group(s, task / num_runs, groups);
        const auto worker = rule ? rule->worker() : nullptr;
        Visibility seen;
        TiledKeys::Reader k = reader(keys, s, group), v = reader(values, s, group);
        const Index packed_size = s.head_dim * kQueries, acc_size = apart(kQueries * s.padded_dim);
        Scratch buffer(kKeys * kQueries + kQueries +
                       group.count * (packed_size + 2 * kQueries + acc_size));
        Real* scores = buffer.data();                    // [keys, queries]
        Real* factor = scores + kKeys * kQueries;        // [queries]
        Real* packed = factor + kQueries;                // [group, head_dim, queries]
        Real* max = packed + group.count * packed_size;  // [group, queries]
        Real* sum = max + group.count * kQueries;        // [group, queries]
        Real* acc = sum + group.count * kQueries;        // [group, queries, padded_dim]
        const auto run = static_cast<std::size_t>(task % num_runs);
        for (Index tile = runs[run]; tile < runs[run + 1]; ++tile) {
          const auto& queries = plan.query_tiles[static_cast<std::size_t>(tile)];
          if (merges && queries.first_segment == queries.end_segment) continue;
          const Index rows = queries.end - queries.begin, first_token = plan.token(queries.begin);
          const Index padded_rows = simd::padded(kernels, rows);
          std::fill(max, sum, kMasked);
          std::fill(sum, acc, Real(0));
          std::vector<QuerySum> sums;
          for (Index g = 0; g < group.count; ++g) sums.push_back({acc + g * acc_size});
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
            for (Index g = 0; g < group.count; ++g) {
              sums[static_cast<std::size_t>(g)].begun = ~std::uint64_t{0};
              const Real* of_head = lse + s.lse_offset(first_token, group.first + g);
              for (Index r = 0; r < rows; ++r) {
                const Real weight = of_head[plan.token(queries.begin + r)];
                max[g * kQueries + r] = weight;
                sum[g * kQueries + r] = weight == kMasked ? Real(0) : Real(1);
              }
            }
            if (times_merge) merge_time += (Clock::now() - start).count();
          }
          for_key_tiles(plan, queries, [&](Index key_tile) {
            const AttentionTile t = pair_of_tiles(plan, queries, key_tile);
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
                                        .gate_use = gate_use},
                                       max + state, sum + state, factor + r);
              }
              dropout.apply(t, seen, group.first + g, scores);
              weighted_sum(seen, rows, scores, v.panels(kv_head), s.padded_dim, factor,
                           sums[static_cast<std::size_t>(g)]);
            }
          });
          // A row without pairs: 0, of weight 0. Else lse = max + log(sum), log(sum) in the packed
          // queries' place.
          for (Index g = 0; g < group.count; ++g) {
            kernels.log_row(sum + g * kQueries, packed, padded_rows, 0);
            Real* of_head = lse + s.lse_offset(first_token, group.first + g);
            for (Index r = 0; r < rows; ++r) {
              const Index state = g * kQueries + r;
              of_head[plan.token(queries.begin + r)] =
                  sum[state] == 0 ? kMasked : max[state] + packed[r];
            }
          }
          for (Index r = 0; r < rows; ++r)
            for (Index g = 0; g < group.count; ++g) {
              Real* to = out + s.q_offset(plan.token(queries.begin + r), group.first + g);
              const Real total = sum[g * kQueries + r];
              if (total == 0)
                std::fill_n(to, s.head_dim, Real(0));
              else
                kernels.scale_row(acc + g * acc_size + r * s.padded_dim, 1 / total, s.head_dim, to,
                                  false);
            }
        }
      });
  if (times_merge)
    profile_split("merge", 1e-9 * static_cast<double>(merge_time) / omp_get_max_threads());
}

}  // namespace focus
