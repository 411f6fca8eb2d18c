#include "focus/method/summary/summary_attention.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/profile.h"
#include "focus/method/attention/group_plans.h"
#include "focus/method/config.h"
#include "focus/method/grouping/group_statistics.h"
#include "focus/method/summary/summary_tokens.h"

namespace focus {
namespace {

void check_summary(const AttentionInputs& in, const GroupIds& group_ids, const Tensor& summary_bias,
                   const SummarySettings& settings) {
  check_attention_inputs(in);
  const Index kv_heads = in.k.dim(2);
  check(group_ids.groups >= 1 && group_ids.groups <= kMaxKeyGroups &&
            (group_ids.heads == 1 || group_ids.heads == kv_heads) &&
            std::ssize(group_ids.ids) == in.q.dim(0) * in.q.dim(1) * group_ids.heads,
        "summary_attention: {} group ids of {} heads in {} groups do not fit k {}",
        group_ids.ids.size(), group_ids.heads, group_ids.groups, in.k.shape());
  check(summary_bias.rank() == 2 && summary_bias.dim(0) == kv_heads &&
            summary_bias.dim(1) == group_ids.groups,
        "summary_attention: summary_bias {} is not [kv_heads {}, groups {}]", summary_bias.shape(),
        kv_heads, group_ids.groups);
  settings.validate("summary_attention: ");
  check(settings.least_selected() >= 0 && settings.most_selected() <= group_ids.groups,
        "summary_attention: cannot select {} to {} of {} groups", settings.least_selected(),
        settings.most_selected(), group_ids.groups);
  check(settings.selected_by_head.empty() ||
            (settings.query_heads_select() && std::ssize(settings.selected_by_head) == in.q.dim(2)),
        "summary_attention: {} group counts for {} query heads, expected as many, where query "
        "heads select",
        settings.selected_by_head.size(), in.q.dim(2));
  check(settings.summary_width.empty() || std::ssize(settings.summary_width) == in.q.dim(2),
        "summary_attention: {} widths of summary tokens for {} query heads",
        settings.summary_width.size(), in.q.dim(2));
  check(!settings.reads_own_group() || (settings.most_selected() == 1 && group_ids.heads == 1),
        "summary_attention: selection own needs groups that all heads share");
  check(in.options.dropout == 0,
        "summary_attention: dropout of the attention weights is not supported");
}

/// Everything that forward and backward share.
class SummaryPass {
 public:
  SummaryPass(AttentionInputs inputs, GroupIds ids, Tensor bias, const SummarySettings& summary)
      : in_(std::move(inputs)),
        group_ids_(std::move(ids)),
        summary_bias_(std::move(bias)),
        options_(with_sliding_window(summary, in_.options.sliding_window)),
        batch_(in_.q.dim(0)),
        seq_len_(in_.q.dim(1)),
        heads_(in_.q.dim(2)),
        kv_heads_(in_.k.dim(2)),
        selecting_(options_.query_heads_select() ? heads_ : kv_heads_),
        reads_all_(options_.least_selected() == group_ids_.groups && !options_.reads_own_group()),
        local_(causal_plan(batch_, seq_len_, in_.options.sliding_window,
                           {.size = options_.block,
                            .near = reads_all_ ? -1 : options_.local_window,
                            .sinks = options_.sinks})),
        sums_(in_.k, in_.v, group_ids_.ids, group_ids_.heads, group_ids_.groups, options_,
              options_.uses_width() && !reads_all_),
        tokens_{in_, sums_, summary_bias_},
        selected_(options_.most_selected() * per_rank()),
        result_{Tensor(in_.q.shape()), Tensor({batch_, heads_, seq_len_})},
        pairs_(batch_, 0),
        scored_(pairs_) {
    for (Index token = 0; options_.reads_own_group() && token < batch_ * seq_len_; ++token)
      std::fill_n(selected_.begin() + token * kv_heads_, kv_heads_, group_ids_.ids[token]);
    // Queries without a distant zone, and heads that select fewer: the first.
    for (Index rank = 0; !options_.reads_own_group() && rank < options_.most_selected(); ++rank)
      std::fill_n(selected_.begin() + rank * per_rank(), per_rank(),
                  static_cast<std::uint8_t>(rank));
  }
  SummaryPass(const SummaryPass&) = delete;

  void forward() {
    profile_mark("sums");
    if (reads_all_) {
      tiled_attention(in_, local_, nullptr, Into::assign, {0, kv_heads_}, result_);
      std::ranges::fill(
          pairs_, heads_ * count_pairs({}, seq_len_, seq_len_, in_.options.sliding_window).all);
      return;
    }
    tokens_.forward(local_, result_, selected_, pairs_, scored_);
    profile_mark("local and summary tokens");
    attend_selected_groups();
    profile_mark("selected groups");
  }

  void backward(const Tensor& d_out, const Grads& grads) {
    const WantedGradients wanted{grads[0].wanted(), grads[1].wanted(), grads[2].wanted()};
    AttentionGradients d;
    if (wanted.any()) d = tiled_attention_backward(in_, local_, result_, d_out, nullptr, wanted);
    profile_mark("local tiles, backward");
    if (wanted.any() && !reads_all_)
      for_each_plan([&](const AttentionPlan& plan, HeadRange of) {
        tiled_attention_backward(in_, plan, result_, d_out, nullptr, wanted, d, of);
      });
    profile_mark("selected groups, backward");
    SummaryTokens::Gradients all{std::move(d), Tensor::zeros(summary_bias_.shape()), {}};
    if (!reads_all_)
      all = tokens_.backward(result_, d_out, selected_, grads[4].wanted(), std::move(all.tokens));
    else if (grads[4].wanted())
      all.shares = Tensor::zeros({batch_, seq_len_, kv_heads_, group_ids_.groups});
    profile_mark("summary tokens, backward");
    if (wanted.q) grads[0].add(all.tokens.q);
    if (wanted.k) grads[1].add(all.tokens.k);
    if (wanted.v) grads[2].add(all.tokens.v);
    if (grads[3].wanted()) grads[3].add(all.summary_bias);
    if (grads[4].wanted()) grads[4].add(of_shares(all.shares));
  }

  const AttentionResult& result() const { return result_; }
  SummaryReport report() const { return {selected_, pairs_, scored_, result_.lse}; }

 private:
  Index per_rank() const { return batch_ * seq_len_ * selecting_; }

  GroupIdView selection(Index rank, Index head) const {
    return {selected_.data() + rank * per_rank() + head, selecting_};
  }
  /// The heads for which a head selects.
  HeadRange heads_of(Index selecting) const {
    if (options_.reads_own_group()) return {0, kv_heads_};  // the same for all
    if (selecting_ == kv_heads_) return {selecting, 1};
    return {selecting / (heads_ / kv_heads_), 1, selecting};
  }
  Index selected_of(Index selecting) const {
    return options_.selected_of(selecting_ == heads_ ? selecting : 0);
  }

  /// Merges the exact groups onto the result, head by head that selects: a task is a head, or where
  /// there are few heads a run of its queries.
  void attend_selected_groups() {
    constexpr Index kTasks = 16, kShortestRun = 1024, kLongestRun = 8192;
    const Index run =
        std::clamp(batch_ * seq_len_ * selecting_ / kTasks, kShortestRun, kLongestRun);
    const auto attend = [&](Index selecting) {
      tiled_attention(in_, plan_of(0, selected_of(selecting), selecting, run), nullptr, Into::add,
                      heads_of(selecting), result_);
    };
    if (options_.reads_own_group()) return attend(0);
    // The heads with the most groups first: a large one at the end would be waited for.
    std::vector<Index> order(selecting_);
    std::iota(order.begin(), order.end(), Index{0});
    std::ranges::stable_sort(order, std::greater(), [&](Index head) { return selected_of(head); });
    parallel_chunks(selecting_, 1, [&](Index number, Index) {
      if (selected_of(order[number]) > 0) attend(order[number]);
    });
  }

  /// The plan of what the queries of a head that selects selected as their best `count` groups from
  /// `rank` on.
  AttentionPlan plan_of(Index rank, Index count, Index selecting, Index run) const {
    std::vector<GroupIdView> selections;
    for (Index i = rank; i < rank + count; ++i) selections.push_back(selection(i, selecting));
    const Index of_keys = group_ids_.heads == 1 ? 0 : heads_of(selecting).first;
    return selected_groups_plan({group_ids_.ids.data() + of_keys, group_ids_.heads}, selections,
                                group_ids_.groups, batch_, seq_len_, options_, run);
  }

  /// Calls f(plan, heads) for the exact groups of all heads so that gradients never meet: where key
  /// heads are enough to be tasks, all lists of a head that selects in one; where not, the lists of
  /// one rank after those of another, each query being in one list of a rank.
  template <class F>
  void for_each_plan(F&& f) const {
    constexpr Index kEnoughHeads = 8;
    const auto call = [&](Index rank, Index count, Index selecting) {
      const AttentionPlan plan = plan_of(rank, count, selecting, seq_len_);
      if (!plan.query_tiles.empty()) f(plan, heads_of(selecting));
    };
    if (options_.reads_own_group()) return call(0, 1, 0);
    if (kv_heads_ >= kEnoughHeads)  // those that share a key head one after the other
      return parallel_chunks(kv_heads_, 1, [&](Index kv_head, Index) {
        const Index sharing = selecting_ / kv_heads_;
        for (Index head = kv_head * sharing; head < (kv_head + 1) * sharing; ++head)
          if (selected_of(head) > 0) call(0, selected_of(head), head);
      });
    for (Index rank = 0; rank < options_.most_selected(); ++rank)
      for (Index head = 0; head < selecting_; ++head)
        if (rank < selected_of(head)) call(rank, 1, head);
  }

  /// Straight through the selection: what key heads owe to shares that they have in common.
  Tensor of_shares(const Tensor& of_heads) const {
    if (group_ids_.heads == kv_heads_) return of_heads;
    const Index groups = group_ids_.groups;
    Tensor sum({batch_, seq_len_, 1, groups});
    parallel_chunks(batch_ * seq_len_, rows_per_chunk(groups), [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        for (Index c = 0; c < groups; ++c) {
          Real total = 0;
          for (Index h = 0; h < kv_heads_; ++h)
            total += of_heads[(row * kv_heads_ + h) * groups + c];
          sum.data()[row * groups + c] = total;
        }
    });
    return sum;
  }

  const AttentionInputs in_;
  const GroupIds group_ids_;
  const Tensor summary_bias_;
  const SummarySettings options_;
  const Index batch_, seq_len_, heads_, kv_heads_;
  const Index selecting_;  // heads that select groups: all query heads or all key heads
  const bool reads_all_;   // every group: dense attention
  const AttentionPlan local_;
  GroupSums sums_;
  const SummaryTokens tokens_;
  std::vector<std::uint8_t> selected_;
  AttentionResult result_;
  std::vector<std::int64_t> pairs_, scored_;
};

}  // namespace

Variable summary_attention(const Variable& q, const Variable& k, const Variable& v,
                           const GroupIds& group_ids, const Variable& summary_bias,
                           const AttentionOptions& options, const SummarySettings& summary,
                           SummaryReport* report) {
  const AttentionInputs inputs{q.value(), k.value(), v.value(), options};
  check_summary(inputs, group_ids, summary_bias.value(), summary);
  const auto pass = std::make_shared<SummaryPass>(inputs, group_ids, summary_bias.value(), summary);
  if (inputs.q.size() > 0) pass->forward();
  if (report != nullptr) *report = pass->report();
  return Variable::from_op(
      "summary_attention", pass->result().out, {q, k, v, summary_bias, group_ids.shares},
      [pass](const Tensor& d_out, Grads grads) { pass->backward(d_out, grads); });
}

}  // namespace focus
