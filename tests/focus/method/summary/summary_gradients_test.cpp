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

}  // namespace
}  // namespace focus
