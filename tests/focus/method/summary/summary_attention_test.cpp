#include "focus/method/summary/summary_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/summary_case.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

/// Calls f on a plain case and on every option beside it.
template <class F>
void sweep_options(const SummaryCase& plain, F&& f) {
  f(plain);
  const auto with = [&](auto&& change) {
    SummaryCase c = plain;
    change(c);
    f(c);
  };
  with([](SummaryCase& c) { c.softcap = 1.5; });
  with([](SummaryCase& c) { c.heads = 4; });  // grouped queries
  with([](SummaryCase& c) { c.heads = 3, c.kv_heads = 1; });
  with([](SummaryCase& c) { c.one_for_all = true; });
  with([](SummaryCase& c) { c.selection = GroupSelection::own, c.num_selected_groups = 1; });
  with([](SummaryCase& c) { c.unselected_groups = UnselectedGroups::drop; });
  with([](SummaryCase& c) { c.spread = Spread::empty_group; });
  with([](SummaryCase& c) { c.spread = Spread::one_group; });
  with([](SummaryCase& c) { c.sliding_window = 5; });  // narrower than the local zone
  with([](SummaryCase& c) { c.sliding_window = 41; });
  with([](SummaryCase& c) { c.window = 0; });
  with([](SummaryCase& c) { c.sinks = 0; });
  with([](SummaryCase& c) { c.sinks = 4, c.sliding_window = 23; });
  with([](SummaryCase& c) { c.sinks = 60; });
  with([](SummaryCase& c) { c.batch = 3; });
  with([](SummaryCase& c) { c.width = 1; });
  with([](SummaryCase& c) { c.width = 0.5, c.heads = 4, c.softcap = 1.5; });
  with([](SummaryCase& c) { c.width = 1, c.sliding_window = 41; });
  with([](SummaryCase& c) { c.width = 1, c.summary_width = true; });
  with([](SummaryCase& c) { c.summary_width = true, c.heads = 4, c.softcap = 1.5; });
  with([](SummaryCase& c) { c.summary_width = true, c.sliding_window = 41, c.one_for_all = true; });
  constexpr SelectionPer kQueryHead = SelectionPer::query_head;
  with([](SummaryCase& c) { c.selection_per = kQueryHead, c.heads = 4; });
  with([](SummaryCase& c) { c.selection_per = kQueryHead, c.heads = 4, c.width = 1; });
  with([](SummaryCase& c) {
    c.selection_per = kQueryHead, c.heads = 6, c.width = 1, c.softcap = 1.5;
    c.selected_by_head = {1, 3, 0, 2, 5, 1}, c.summary_width = true;
  });
  with([](SummaryCase& c) {
    c.selection_per = kQueryHead, c.heads = 3, c.kv_heads = 1, c.batch = 2;
    c.selected_by_head = {2, 0, 4}, c.unselected_groups = UnselectedGroups::drop;
  });
  with([](SummaryCase& c) {  // as many key heads as tasks
    c.selection_per = kQueryHead, c.heads = 16, c.kv_heads = 8, c.sliding_window = 41;
    c.selected_by_head = {1, 2, 1, 0, 5, 1, 3, 3, 1, 2, 2, 1, 0, 4, 1, 2};
  });
}

TEST(SummaryAttention, EqualsTheReference) {
  for (const Index top_groups : {0, 1, 2, 5})
    for (const Index block : {1, 16})
      sweep_options({.num_selected_groups = top_groups, .block = block},
                    [](const SummaryCase& c) { expect_reference(c); });
}

TEST(SummaryAttention, EqualsTheReferenceOnShortTexts) {
  for (const Index seq_len : {1, 2, 9, 33})  // below a block, and just above
    for (const Index top_groups : {0, 2, 5})
      sweep_options(
          {.seq_len = seq_len, .num_selected_groups = top_groups, .window = 0, .block = 16},
          [](const SummaryCase& c) { expect_reference(c); });
}

TEST(SummaryAttention, EqualsTheReferenceForEverySizeOfBlockAndWindow) {
  for (const Index block : {1, 3, 16, 32, 64, 100})
    for (const Index window : {0, 1, 20, 32, 1000})
      for (const Index sliding_window : {0, 13, 111})
        expect_reference({.seq_len = 215,
                          .kv_heads = 1,
                          .num_selected_groups = 2,
                          .window = window,
                          .block = block,
                          .sinks = block % 3,
                          .sliding_window = sliding_window});
}

TEST(SummaryAttention, EqualsTheReferenceForFewAndManyGroups) {
  // 128 and a sink, 256: more columns than a tile has keys.
  for (const Index groups : {1, 2, 31, 64, 128, 256})
    for (const Index top_groups : {Index{0}, Index{1}, groups - 1, groups})
      for (const Index sinks : {0, 60}) {
        SummaryCase c{.batch = 2,
                      .seq_len = 170,
                      .heads = 4,
                      .groups = groups,
                      .num_selected_groups = top_groups,
                      .window = 20,
                      .block = 16,
                      .sinks = sinks};
        expect_reference(c);
        c.heads = 2;
        c.sliding_window = 77;
        expect_reference(c);
      }
}

TEST(SummaryAttention, EqualsTheReferenceOverSeveralRuns) {
  for (const Index block : {1, 32, 100})
    for (const Index sliding_window : {0, 50, 300, 600})
      expect_reference({.seq_len = 700,
                        .heads = 3,
                        .kv_heads = 1,
                        .head_dim = 20,
                        .groups = 9,
                        .num_selected_groups = 2,
                        .window = 33,
                        .block = block,
                        .sinks = 4,
                        .sliding_window = sliding_window,
                        .softcap = block == 32 ? 2.0 : 0.0,
                        .summary_width = block > 1});
  // A block, or a window, longer than a run.
  expect_reference({.batch = 2, .seq_len = 700, .window = 280, .block = 300});
  // So many heads that each goes through its runs in turn.
  for (const Index sliding_window : {0, 300})
    expect_reference({.batch = 2,
                      .seq_len = 600,
                      .heads = 8,
                      .kv_heads = 4,
                      .num_selected_groups = 2,
                      .block = 16,
                      .sliding_window = sliding_window});
  // Backward takes all lists of a head together.
  for (const Index heads : {8, 16})
    for (const Index top_groups : {1, 3})
      expect_reference({.batch = 2,
                        .seq_len = 300,
                        .heads = heads,
                        .kv_heads = 8,
                        .num_selected_groups = top_groups,
                        .block = 16});
  expect_reference({.seq_len = 800, .window = 5, .block = 1, .sinks = 0, .sliding_window = 257});
  expect_reference({.seq_len = 800, .num_selected_groups = 0, .block = 64, .sliding_window = 513});
}

TEST(SummaryAttention, EqualsTheReferenceForHeadDimensionsOfPublishedModels) {
  for (const Index head_dim : {1, 8, 20, 64, 80, 128, 256})
    for (const Index heads : {1, 4})
      expect_reference({.seq_len = 150,
                        .heads = heads,
                        .kv_heads = 1,
                        .head_dim = head_dim,
                        .groups = 16,
                        .num_selected_groups = 2,
                        .window = 20,
                        .block = 32});
}

TEST(SummaryAttention, EqualsTheReferenceWhereScoresDifferMuch) {
  for (const Index heads : {2, 4})
    for (const Index top_groups : {0, 1})
      for (const double softcap : {0.0, 20.0})
        expect_reference({.seq_len = 200,
                          .heads = heads,
                          .num_selected_groups = top_groups,
                          .softcap = softcap,
                          .sharp = 15},
                         tolerance(2e-4, 1e-9));
}

RC_GTEST_PROP(SummaryAttention, EqualsTheReferenceForAnyOptions, ()) {
  const auto in = [](int low, int high) { return *rc::gen::inRange(low, high + 1); };
  SummaryCase c;
  c.batch = in(1, 3);
  c.seq_len = in(1, 140);
  c.kv_heads = in(1, 3);
  c.heads = c.kv_heads * in(1, 3);
  c.head_dim = in(1, 9);
  c.groups = in(1, 8);
  c.selection = in(0, 3) == 0 ? GroupSelection::own : GroupSelection::mass;
  c.num_selected_groups = c.reads_own() ? 1 : in(0, static_cast<int>(c.groups));
  c.window = *rc::gen::element<Index>(0, in(0, 150), in(0, 20));
  c.block = in(1, 40);
  c.sinks = *rc::gen::element<Index>(0, 1, in(0, 64));
  c.sliding_window = *rc::gen::element<Index>(0, in(1, 150));
  c.softcap = *rc::gen::element(0.0, 0.8, 3.0);
  c.unselected_groups = *rc::gen::element(UnselectedGroups::summary, UnselectedGroups::drop);
  c.one_for_all = *rc::gen::arbitrary<bool>();
  c.width = *rc::gen::element(0.0, 0.4, 1.0);
  c.summary_width = !c.reads_own() && *rc::gen::arbitrary<bool>();
  c.spread = *rc::gen::element(Spread::random, Spread::one_group, Spread::empty_group);
  c.seed = static_cast<std::uint64_t>(in(1, 1000)) * 100;
  const auto [worst, where] = difference_from_reference(summary_inputs_of(c), d_out_of(c));
  RC_LOG() << where << " differs by " << worst << " in " << c.str();
  RC_ASSERT(worst <= kSummaryTolerance);
}

/// Value and gradients of q, k and v, and of summary_bias, where the op is dense attention.
void expect_dense(const SummaryCase& c) {
  const SummaryInputs in = summary_inputs_of(c);
  const Tensor d_out = d_out_of(c);
  const SummaryRun run = run_summary(in, d_out);
  const Variables x = leaves({in.q, in.k, in.v});
  const Variable dense = attention(x[0], x[1], x[2], in.options);
  backward(multiply(dense, Variable(d_out)));
  EXPECT_TRUE(same_bits(run.tensors[0], dense.value())) << c.str();
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(same_bits(run.tensors[i + 1], x[i].grad())) << "input " << i << " of " << c.str();
  for (std::size_t i = 4; i < 6; ++i)
    for (const Real g : run.tensors[i].span()) ASSERT_EQ(g, 0) << c.str();
}

TEST(SummaryAttention, AllGroupsReadExactlyIsDenseAttention) {
  for (const Index sliding_window : {0, 40})
    for (const Index heads : {2, 4})
      for (const UnselectedGroups rest : {UnselectedGroups::summary, UnselectedGroups::drop})
        expect_dense({.batch = 2,
                      .seq_len = 300,
                      .heads = heads,
                      .num_selected_groups = 5,
                      .sliding_window = sliding_window,
                      .softcap = 2,
                      .unselected_groups = rest});
}

TEST(SummaryAttention, AWindowOverTheWholeTextIsDenseAttention) {
  for (const Index window : {299, 300, 5000})
    for (const Index block : {1, 32})
      for (const Index top_groups : {0, 2})
        expect_dense({.batch = 2,
                      .seq_len = 300,
                      .heads = 4,
                      .num_selected_groups = top_groups,
                      .window = window,
                      .block = block});
}

TEST(SummaryAttention, OfEqualMassesTheFirstIsRead) {
  // Keys and values come in equal pairs, one in each of two groups.
  SummaryCase c{.seq_len = 120, .heads = 4, .groups = 4, .window = 0, .block = 8, .sinks = 0};
  SummaryInputs in = summary_inputs_of(c);
  in.summary_bias = Tensor::zeros(in.summary_bias.shape());
  const Index row = c.kv_heads * c.head_dim;
  for (Index t = 0; t < c.seq_len; ++t) {
    const Index group = t % 2 == 0 ? 3 : 1;
    for (Index h = 0; h < c.kv_heads; ++h)
      in.group_ids.ids[t * c.kv_heads + h] = static_cast<std::uint8_t>(group);
    if (t % 2 == 1) std::copy_n(in.k.data() + (t - 1) * row, row, in.k.data() + t * row);
  }
  for (const Index heads : {2, 4}) {
    in.q = randn({1, c.seq_len, heads, c.head_dim}, 9);
    for (const Index top_groups : {1, 2, 3}) {
      in.summary.num_selected_groups = top_groups;
      const SummaryRun run = run_summary(in, randn({1, c.seq_len, heads, c.head_dim}, 10));
      const std::vector<std::uint8_t> order{1, 3, 0};  // then the empty ones
      for (Index rank = 0; rank < top_groups; ++rank)
        for (Index i = 8 * c.kv_heads; i < c.seq_len * c.kv_heads; ++i)
          ASSERT_EQ(run.report.selected[rank * c.seq_len * c.kv_heads + i], order[rank])
              << "rank " << rank << " query " << i / c.kv_heads << " heads " << heads;
    }
  }
}

TEST(SummaryAttention, AnInputsGradientIsTheSameWhereTheOthersAreFrozen) {
  const SummaryCase c;
  const SummaryInputs in = summary_inputs_of(c);
  const Tensor d_out = d_out_of(c);
  const SummaryRun all = run_summary(in, d_out);
  for (std::size_t wanted = 0; wanted < 5; ++wanted) {
    Variables x{in.q, in.k, in.v, in.summary_bias, in.z};
    x[wanted] = leaf(x[wanted].value());
    const GroupIds group_ids = group_ids_of(x[4], in.tau);
    const Variable out =
        summary_attention(x[0], x[1], x[2], group_ids, x[3], in.options, in.summary);
    backward(multiply(out, Variable(d_out)));
    EXPECT_TRUE(same_bits(x[wanted].grad(), all.tensors[wanted + 1])) << "input " << wanted;
  }
}

TEST(SummaryAttention, RefusesWhatDoesNotFit) {
  using In = SummaryInputs;
  const auto refusal = [](auto&& change) {
    In in = summary_inputs_of({.seq_len = 12});
    change(in);
    return error_of([&] {
      summary_attention(in.q, in.k, in.v, in.group_ids, in.summary_bias, in.options, in.summary);
    });
  };
  EXPECT_EQ(refusal([](In&) {}), "");
  EXPECT_EQ(refusal([](In& in) { in.summary.sinks = 64; }), "");
  const std::vector<std::pair<const char*, void (*)(In&)>> wrong = {
      {"dropout", [](In& in) { in.options.dropout = 0.1; }},
      {"sinks must be from 0 to 64, not 65", [](In& in) { in.summary.sinks = 65; }},
      {"sinks must be from 0 to 64, not -1", [](In& in) { in.summary.sinks = -1; }},
      {"block must be from 1", [](In& in) { in.summary.block = 0; }},
      {"local_window must be from 0", [](In& in) { in.summary.local_window = -1; }},
      {"width must be from 0 to 1, not 1.5", [](In& in) { in.summary.width = 1.5; }},
      {"summary_bias",
       [](In& in) {
         in.summary_bias = randn({2, 4}, 1);
       }},
      {"summary_bias",
       [](In& in) {
         in.summary_bias = randn({1, 5}, 1);
       }},
      {"summary_bias", [](In& in) { in.summary_bias = randn({10}, 1); }},
      {"6 of 5 groups", [](In& in) { in.summary.num_selected_groups = 6; }},
      {"num_selected_groups must be from 0", [](In& in) { in.summary.num_selected_groups = -1; }},
      {"-1 to 1 of 5 groups",
       [](In& in) {
         in.summary.selected_by_head = {-1, 1};
       }},
      {"3 group counts for 2 query heads",
       [](In& in) {
         in.summary.selected_by_head = {1, 1, 1};
       }},
      {"groups that all heads share", [](In& in) { in.summary.selection = GroupSelection::own; }},
      {"groups that all heads share",
       [](In& in) {
         in.group_ids = group_ids_of(Variable(randn({1, 12, 1, 5}, 1)), 1);
         in.summary.selection = GroupSelection::own;
         in.summary.num_selected_groups = 2;
       }},
      {"257 groups", [](In& in) { in.group_ids.groups = 257; }},
      {"23 group ids", [](In& in) { in.group_ids.ids.pop_back(); }},
      {"3 heads", [](In& in) { in.group_ids.heads = 3; }}};
  for (const auto& [what, change] : wrong)
    EXPECT_THAT(refusal(change),
                testing::AllOf(testing::HasSubstr("summary_attention"), testing::HasSubstr(what)));
}

}  // namespace
}  // namespace focus
