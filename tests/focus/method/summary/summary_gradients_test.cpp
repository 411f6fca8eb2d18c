#include <gtest/gtest.h>

#include "tests/support/gradcheck.h"
#include "tests/support/summary_case.h"

namespace focus {
namespace {

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

TEST(SummaryGradients, OfClassesThatKeyHeadsShareAreSums) {
  // A key head's own scores, the same for both, get parts of what shared ones get.
  SummaryCase c{.seq_len = 300, .one_for_all = true};
  const SummaryInputs shared = summary_inputs_of(c);
  SummaryInputs apart = shared;
  const Tensor& z = shared.z;
  Tensor twice({1, c.seq_len, 2, c.groups});
  for (Index t = 0; t < c.seq_len; ++t)
    for (Index h = 0; h < 2; ++h)
      std::copy_n(z.data() + t * c.groups, c.groups, twice.data() + (t * 2 + h) * c.groups);
  apart.z = twice;
  apart.group_ids = group_ids_of(Variable(twice), apart.tau);
  const SummaryRun one = run_summary(shared, d_out_of(c)), two = run_summary(apart, d_out_of(c));
  EXPECT_TRUE(same_bits(one.tensors[0], two.tensors[0]));
  Tensor sum = Tensor::zeros(z.shape());
  for (Index t = 0; t < c.seq_len; ++t)
    for (Index g = 0; g < c.groups; ++g)
      sum.data()[t * c.groups + g] =
          two.tensors[5][(t * 2) * c.groups + g] + two.tensors[5][(t * 2 + 1) * c.groups + g];
  EXPECT_LE(relative_difference(one.tensors[5], sum), tolerance(1e-5, 1e-12));
}

}  // namespace
}  // namespace focus
