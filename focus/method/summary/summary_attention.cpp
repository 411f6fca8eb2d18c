#include "focus/method/summary/summary_attention.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/profile.h"
#include "focus/method/config.h"
#include "focus/method/grouping/pair_counts.h"
#include "focus/method/summary/chosen_plan.h"
#include "focus/method/summary/summary_columns.h"

namespace focus {
namespace {

void check_summary(const AttentionInputs& in, const KeyClasses& classes, const Tensor& beta,
                   const SummarySettings& options) {
  check_attention_inputs(in);
  const SummarySettings& settings = options;
  const Index kv_heads = in.k.dim(2);
  check(classes.groups >= 1 && classes.groups <= kMaxKeyGroups &&
            (classes.heads == 1 || classes.heads == kv_heads) &&
            static_cast<Index>(classes.classes.size()) == in.q.dim(0) * in.q.dim(1) * classes.heads,
        "summary_attention: {} classes of {} heads in {} groups do not fit k {}",
        classes.classes.size(), classes.heads, classes.groups, in.k.shape());
  check(beta.rank() == 2 && beta.dim(0) == kv_heads && beta.dim(1) == classes.groups,
        "summary_attention: beta {} is not [kv_heads {}, groups {}]", beta.shape(), kv_heads,
        classes.groups);
  check(settings.local_window >= 0 && settings.block >= 1 && settings.sinks >= 0 &&
            settings.sinks <= kMaxSinks,
        "summary_attention: window {}, block {}, sinks {}: expected at least 0, at least 1, and "
        "from 0 to {}",
        settings.local_window, settings.block, settings.sinks, kMaxSinks);
  check(options.num_selected_groups >= 0 && options.num_selected_groups <= classes.groups,
        "summary_attention: cannot select {} of {} groups", options.num_selected_groups,
        classes.groups);
  check(options.selected_by_head.empty() ||
            (options.query_heads_select() && options.least_selected() >= 0 &&
             options.most_selected() <= classes.groups &&
             std::ssize(options.selected_by_head) == in.q.dim(2)),
        "summary_attention: {} group counts for {} query heads, expected as many, each from 0 to "
        "{}, where query heads select",
        options.selected_by_head.size(), in.q.dim(2), classes.groups);
  check(!options.reads_own_group() || (options.num_selected_groups == 1 && classes.heads == 1),
        "summary_attention: selection own needs groups that all heads share");
  check(options.width >= 0 && options.width <= 1, "summary_attention: width is {}, expected 0 to 1",
        options.width);
  check(in.options.dropout == 0,
        "summary_attention: dropout of the attention weights is not supported");
}

/// Everything that forward and backward share.
class SummaryPass {
 public:
  SummaryPass(AttentionInputs inputs, KeyClasses key_classes, Tensor column_bias,
              const SummarySettings& summary)
      : in_(std::move(inputs)),
        classes_(std::move(key_classes)),
        beta_(std::move(column_bias)),
        options_(with_sliding_window(summary, in_.options.sliding_window)),
        batch_(in_.q.dim(0)),
        seq_len_(in_.q.dim(1)),
        heads_(in_.q.dim(2)),
        kv_heads_(in_.k.dim(2)),
        selecting_(options_.query_heads_select() ? heads_ : kv_heads_),
        reads_all_(options_.least_selected() == classes_.groups && !options_.reads_own_group()),
        near_(causal_plan(batch_, seq_len_, in_.options.sliding_window,
                          {.size = options_.block,
                           .near = reads_all_ ? -1 : options_.local_window,
                           .sinks = options_.sinks})),
        sums_(in_.k, in_.v, classes_.classes, classes_.heads, classes_.groups, options_,
              options_.uses_width() && !reads_all_),
        columns_(in_, sums_, beta_, options_),
        chosen_(static_cast<std::size_t>(options_.most_selected() * per_rank())),
        result_{Tensor(in_.q.shape()), Tensor({batch_, in_.q.dim(2), seq_len_})},
        pairs_(static_cast<std::size_t>(batch_), 0),
        scored_(pairs_) {
    for (Index token = 0; options_.reads_own_group() && token < batch_ * seq_len_; ++token)
      std::fill_n(chosen_.begin() + token * kv_heads_, kv_heads_,
                  classes_.classes[static_cast<std::size_t>(token)]);
    // Queries without a far zone, and heads that select fewer: the first.
    for (Index rank = 0; !options_.reads_own_group() && rank < options_.most_selected(); ++rank)
      std::fill_n(chosen_.begin() + rank * per_rank(), per_rank(), static_cast<std::uint8_t>(rank));
  }
  SummaryPass(const SummaryPass&) = delete;

  void forward() {
    profile_mark("sums");
    if (reads_all_) {
      tiled_attention(in_, near_, nullptr, Into::assign, {0, kv_heads_}, result_);
    } else {
      columns_.forward(near_, result_, chosen_, pairs_, scored_);
      profile_mark("near and columns");
      attend_chosen();
      profile_mark("chosen groups");
    }
    if (reads_all_)
      std::ranges::fill(
          pairs_, heads_ * count_pairs({}, seq_len_, seq_len_, in_.options.sliding_window).all);
  }

  void backward(const Tensor& d_out, const Grads& grads) {
    const WantedGradients wanted{grads[0].wanted(), grads[1].wanted(), grads[2].wanted()};
    AttentionGradients d;
    if (wanted.any()) d = tiled_attention_backward(in_, near_, result_, d_out, nullptr, wanted);
    profile_mark("near tiles, backward");
    if (wanted.any() && !reads_all_)
      for_each_plan([&](const AttentionPlan& plan, HeadRange of) {
        tiled_attention_backward(in_, plan, result_, d_out, nullptr, wanted, d, of);
      });
    profile_mark("chosen groups, backward");
    SummaryColumns::Gradients all{std::move(d), {}, {}};
    if (reads_all_) {
      all.beta = Tensor::zeros(beta_.shape());
      if (grads[4].wanted())
        all.classes = Tensor::zeros({batch_, seq_len_, kv_heads_, classes_.groups});
    } else {
      all = columns_.backward(result_, d_out, chosen_, grads[4].wanted(), std::move(all.tokens));
    }
    profile_mark("columns, backward");
    if (wanted.q) grads[0].add(all.tokens.q);
    if (wanted.k) grads[1].add(all.tokens.k);
    if (wanted.v) grads[2].add(all.tokens.v);
    if (grads[3].wanted()) grads[3].add(all.beta);
    if (grads[4].wanted()) grads[4].add(of_shares(all.classes));
  }

  const AttentionResult& result() const { return result_; }
  SummaryReport report() const { return {chosen_, pairs_, scored_, result_.lse}; }

 private:
  Index per_rank() const { return batch_ * seq_len_ * selecting_; }

  ClassView classes_of_keys(Index head) const {
    return {classes_.classes.data() + (classes_.heads == 1 ? 0 : head), classes_.heads};
  }
  ClassView choice(Index rank, Index head) const {
    return {chosen_.data() + rank * per_rank() + head, selecting_};
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
  void attend_chosen() {
    constexpr Index kTasks = 16, kShortestRun = 1024, kLongestRun = 8192;
    const Index run =
        std::clamp(batch_ * seq_len_ * selecting_ / kTasks, kShortestRun, kLongestRun);
    const auto attend = [&](Index selecting) {
      tiled_attention(in_, plan_of(0, selected_of(selecting), selecting, run), nullptr, Into::add,
                      heads_of(selecting), result_);
    };
    if (options_.most_selected() == 0) return;
    if (options_.reads_own_group())
      attend(0);
    else {
      // The heads with the most groups first: a large one at the end would be waited for.
      std::vector<Index> order(static_cast<std::size_t>(selecting_));
      std::iota(order.begin(), order.end(), Index{0});
      std::ranges::stable_sort(order, std::greater(),
                               [&](Index head) { return selected_of(head); });
      parallel_chunks(selecting_, 1, [&](Index number, Index) {
        const Index head = order[static_cast<std::size_t>(number)];
        if (selected_of(head) > 0) attend(head);
      });
    }
  }

  /// The plan of what the queries of a head that selects chose as their best `count` groups from
  /// `rank` on.
  AttentionPlan plan_of(Index rank, Index count, Index selecting, Index run) const {
    std::vector<ClassView> choices;
    for (Index i = rank; i < rank + count; ++i) choices.push_back(choice(i, selecting));
    return chosen_plan(classes_of_keys(heads_of(selecting).first), choices, classes_.groups, batch_,
                       seq_len_, options_, run);
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
    if (options_.most_selected() == 0) return;
    if (options_.reads_own_group()) {
      call(0, 1, 0);
      return;
    }
    if (kv_heads_ >= kEnoughHeads) {  // those that share a key head one after the other
      parallel_chunks(kv_heads_, 1, [&](Index kv_head, Index) {
        const Index sharing = selecting_ / kv_heads_;
        for (Index head = kv_head * sharing; head < (kv_head + 1) * sharing; ++head)
          if (selected_of(head) > 0) call(0, selected_of(head), head);
      });
      return;
    }
    for (Index rank = 0; rank < options_.most_selected(); ++rank)
      for (Index head = 0; head < selecting_; ++head)
        if (rank < selected_of(head)) call(rank, 1, head);
  }

  /// Straight through the choice: what key heads owe to shares that they have in common.
  Tensor of_shares(const Tensor& of_heads) const {
    if (classes_.heads == kv_heads_) return of_heads;
    const Index groups = classes_.groups;
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
  const KeyClasses classes_;
  const Tensor beta_;
  const SummarySettings options_;
  const Index batch_, seq_len_, heads_, kv_heads_;
  const Index selecting_;  // heads that select groups: all query heads or all key heads
  const bool reads_all_;   // every group: dense attention
  const AttentionPlan near_;
  GroupSums sums_;
  const SummaryColumns columns_;
  std::vector<std::uint8_t> chosen_;
  AttentionResult result_;
  std::vector<std::int64_t> pairs_, scored_;
};

}  // namespace

Variable summary_attention(const Variable& q, const Variable& k, const Variable& v,
                           const KeyClasses& classes, const Variable& beta,
                           const AttentionOptions& options, const SummarySettings& summary,
                           SummaryReport* report) {
  const AttentionInputs inputs{q.value(), k.value(), v.value(), options};
  check_summary(inputs, classes, beta.value(), summary);
  const auto pass = std::make_shared<SummaryPass>(inputs, classes, beta.value(), summary);
  if (inputs.q.size() > 0) pass->forward();
  if (report != nullptr) *report = pass->report();
  return Variable::from_op(
      "summary_attention", pass->result().out, {q, k, v, beta, classes.shares},
      [pass](const Tensor& d_out, Grads grads) { pass->backward(d_out, grads); });
}

}  // namespace focus
