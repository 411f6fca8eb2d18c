// What summary_attention promises beside its numbers: the same bits for any number of threads, no
// look ahead, and gradients that agree with differences.
#include "tests/support/gradcheck.h"
#include "tests/support/summary_case.h"

namespace focus {
namespace {

std::vector<SummaryCase> long_cases() {
  const SummaryCase plain{.batch = 2,
                          .seq_len = 700,
                          .heads = 4,
                          .head_dim = 20,
                          .groups = 9,
                          .num_selected_groups = 2,
                          .window = 33,
                          .block = 16};
  SummaryCase sliding = plain, drop = plain, own = plain, means = plain, many_heads = plain;
  sliding.sliding_window = 310;
  sliding.sinks = 4;
  drop.unselected_groups = UnselectedGroups::drop;
  drop.heads = 2;
  own.selection = GroupSelection::own;
  own.num_selected_groups = 1;
  means.num_selected_groups = 0;
  means.softcap = 2;
  many_heads.heads = many_heads.kv_heads = 9;
  SummaryCase wide = plain, wide_sliding = sliding;
  wide.width = wide_sliding.width = 1;
  wide.softcap = 2;
  SummaryCase by_head = wide_sliding, budgets = wide;
  by_head.selection_per = budgets.selection_per = SelectionPer::query_head;
  budgets.selected_by_head = {3, 1, 2, 5};
  return {plain, sliding, drop, own, means, many_heads, wide, wide_sliding, by_head, budgets};
}

TEST(SummaryPromises, AnyNumberOfThreadsGivesTheSameBits) {
  for (const SummaryCase& c : long_cases())
    expect_same_bits_for_any_threads(c.str(), [&] {
      SummaryRun run = run_summary(summary_inputs_of(c), d_out_of(c));
      run.tensors.push_back(run.report.lse);
      return run.tensors;
    });
}

/// The tensor [batch, seq_len, ...] without what comes from a position on.
Tensor cut(const Tensor& x, Index seq_len) {
  Tensor shorter(x.shape().with(1, seq_len));
  const Index row = x.size() / (x.dim(0) * x.dim(1));
  for (Index b = 0; b < x.dim(0); ++b)
    std::copy_n(x.data() + b * x.dim(1) * row, seq_len * row, shorter.data() + b * seq_len * row);
  return shorter;
}
/// Other numbers, and larger ones, from a position on.
Tensor other_end(const Tensor& x, Index from, std::uint64_t seed) {
  Tensor other = randn(x.shape(), seed, 30);
  const Index row = x.size() / (x.dim(0) * x.dim(1));
  for (Index b = 0; b < x.dim(0); ++b)
    std::copy_n(x.data() + b * x.dim(1) * row, from * row, other.data() + b * x.dim(1) * row);
  return other;
}
template <class F>
SummaryInputs changed(const SummaryInputs& in, F&& change) {
  SummaryInputs other = in;
  other.q = change(in.q, 91);
  other.k = change(in.k, 92);
  other.v = change(in.v, 93);
  other.z = change(in.z, 94);
  other.group_ids = group_ids_of(Variable(other.z), in.tau);
  return other;
}
Tensor output_of(const SummaryInputs& in) {
  return summary_attention(in.q, in.k, in.v, in.group_ids, in.summary_bias, in.options, in.summary)
      .value();
}

TEST(SummaryPromises, LaterTokensChangeNoBitOfEarlierOutputs) {
  for (SummaryCase c : long_cases())
    for (const Index block : {1, 16, 32}) {
      c.block = block;
      const SummaryInputs in = summary_inputs_of(c);
      const Tensor out = output_of(in);
      for (const Index from : {1, 70, 256, 299, 512, 631, 699}) {
        const Tensor kept = cut(out, from);
        const SummaryInputs other = changed(in, [&](const Tensor& x, int seed) {
          return other_end(x, from, static_cast<std::uint64_t>(seed));
        });
        const Tensor other_out = output_of(other);
        EXPECT_TRUE(same_bits(cut(other_out, from), kept))
            << "other from " << from << " on, " << c.str();
        EXPECT_FALSE(same_bits(other_out, out));
        const SummaryInputs shorter =
            changed(in, [&](const Tensor& x, int) { return cut(x, from); });
        EXPECT_TRUE(same_bits(output_of(shorter), kept)) << "cut at " << from << ", " << c.str();
      }
    }
}

/// Central differences of q, k, v and summary_bias, the group_ids given. The selection must be the
/// same in every evaluation: a case where it is not has to be another one.
void expect_summary_gradients(const SummaryCase& c) {
  SCOPED_TRACE(c.str());
  const SummaryInputs in = summary_inputs_of(c);
  const GroupIds given = in.group_ids;
  std::vector<std::uint8_t> selected;
  const auto evaluate = [&](const Variables& x) {
    SummaryReport report;
    const Variable out =
        summary_attention(x[0], x[1], x[2], given, x[3], in.options, in.summary, &report);
    if (selected.empty()) selected = report.selected;
    EXPECT_EQ(report.selected, selected) << "the choice flips at the step's size";
    return out;
  };
  // Thousands of small calls: threads would cost more than they do.
  with_threads(1, [&] { expect_gradients(evaluate, {in.q, in.k, in.v, in.summary_bias}); });
}

TEST(SummaryGradients, AgreeWithDifferencesWithoutAChoice) {
  for (const bool own_group : {false, true})
    for (const Index sliding_window : {0, 17})
      for (const double softcap : {0.0, 1.5})
        for (const UnselectedGroups rest : {UnselectedGroups::summary, UnselectedGroups::drop})
          expect_summary_gradients(
              {.seq_len = 30,
               .heads = 4,
               .head_dim = 3,
               .groups = 4,
               .num_selected_groups = own_group ? 1 : 0,
               .window = 3,
               .block = 4,
               .sinks = 2,
               .sliding_window = sliding_window,
               .softcap = softcap,
               .unselected_groups = rest,
               .selection = own_group ? GroupSelection::own : GroupSelection::mass});
}

TEST(SummaryGradients, AgreeWithDifferencesWhereGroupsAreChosen) {
  // In float the step would change the selection.
  if (!kRealIsDouble) GTEST_SKIP() << "in the double twin only";
  SummaryCase c{.seq_len = 30, .head_dim = 3, .groups = 4, .window = 3, .block = 4, .sinks = 1};
  for (const Index sliding_window : {0, 17}) {
    c.sliding_window = sliding_window;
    for (const Index top_groups : {1, 2})
      for (const Index heads : {2, 4}) {
        SummaryCase together = c;
        together.num_selected_groups = top_groups;
        together.heads = heads;
        expect_summary_gradients(together);
      }
    for (const std::vector<Index>& by_head : {std::vector<Index>{}, {1, 0, 3, 2}}) {
      SummaryCase alone = c;
      alone.heads = 4;
      alone.width = 0.7;
      alone.selection_per = SelectionPer::query_head;
      alone.selected_by_head = by_head;
      expect_summary_gradients(alone);
    }
  }
}

}  // namespace
}  // namespace focus
