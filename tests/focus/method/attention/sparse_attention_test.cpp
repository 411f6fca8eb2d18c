#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <tuple>

#include "autograd/gemm/gemm.h"
#include "focus/method/attention/focus_attention.h"
#include "focus/method/attention/group_plans.h"
#include "tests/support/attention_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

const FocusAttention kSparse = sparse_attention;

TEST(SparseAttention, EqualsTheComposedForm) {
  sweep_twins({{1, true}, {1, false}, {2, true}, {2, false}, {3, true}, {3, false}}, kSparse);
}

TEST(SparseAttention, EqualsTheComposedFormOverSeveralTilesAndSmallClasses) {
  for (const int top_k : {1, 2, 4})
    expect_twin({.seq_len = 700,
                 .heads = 3,
                 .kv_heads = 1,
                 .head_dim = 20,
                 .groups = 5,
                 .top_k = top_k,
                 .local_window = 33,
                 .sliding_window = top_k == 2 ? 300 : 0},
                kSparse);
  // Beyond the keys of one pass.
  expect_twin({.seq_len = 1300, .head_dim = 256, .groups = 2, .top_k = 1, .local_window = 33},
              kSparse);
  // With the affinity gate or none all pairs with a mask are cheaper for small classes; the logit
  // gate keeps their lists.
  Case c{.batch = 2, .seq_len = 400, .heads = 4, .head_dim = 20, .groups = 12, .top_k = 2};
  c.local_window = 17;
  for (const auto& [gated, gate] : {std::pair{true, Gate::affinity}, std::pair{true, Gate::logit},
                                    std::pair{false, Gate::affinity}})
    for (const Index sliding_window : {0, 250}) {
      c.gated = gated;
      c.gate = gate;
      c.sliding_window = sliding_window;
      expect_twin(c, kSparse);
    }
}

TEST(SparseAttention, DropsTheWeightsThatTheComposedFormDrops) {
  // Over one tile and several, small classes, and all pairs with a mask.
  Case c{.batch = 2, .seq_len = 300, .heads = 4, .head_dim = 8, .local_window = 17, .dropout = 0.3};
  for (const Index groups : {2, 12})
    for (const int top_k : {1, 2})
      for (const Gate gate : {Gate::affinity, Gate::logit}) {
        c.groups = groups;
        c.top_k = top_k;
        c.gate = gate;
        expect_twin(c, kSparse);
      }
}

void expect_twin_with(const std::vector<std::uint64_t>& sets, const Case& c) {
  const std::vector<Tensor> x = inputs_of(c);
  GateOptions gate = gate_of(c, x[3]);
  gate.membership = sets;
  expect_twin(c, kSparse, x, gate);
}

TEST(SparseAttention, MaskedScoresMayBeTheHighest) {
  // By hundreds: what is left of a row would vanish if its maximum counted them.
  for (const bool gated : {true, false}) {
    Case c{.seq_len = 400, .kv_heads = 1, .head_dim = 8, .groups = 12, .gated = gated, .top_k = 2};
    c.local_window = 3;
    const std::vector<Tensor> x = sharp_inputs_of(c);
    expect_twin(c, kSparse, x, gate_of(c, x[3]), kSharpTolerance);
  }
}

TEST(SparseAttention, EqualsTheComposedFormWhereSomeClassesAreSmall) {
  // Two thirds of the tokens in one class, the others in ten.
  std::vector<std::uint64_t> sets(600);
  for (std::size_t i = 0; i < sets.size(); ++i) sets[i] = i % 3 != 0 ? 3 : 1 + i / 3 % 31;
  for (const Gate gate : {Gate::affinity, Gate::logit})
    expect_twin_with(sets,
                     {.seq_len = 600, .groups = 5, .gate = gate, .top_k = 1, .local_window = 9});
}

TEST(SparseAttention, EqualsTheComposedFormWhereListsAreCheaperThanAMask) {
  // 36 classes of about 40 tokens, each of which meets two others.
  const Case c{.seq_len = 1500, .heads = 1, .kv_heads = 1, .top_k = 1};
  std::vector<std::uint64_t> sets(1500);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const std::size_t id = i * i % 1009 % 36;
    sets[i] = std::uint64_t{1} << id / 3 | std::uint64_t{1} << (12 + id);
  }
  const AttentionPlan plan = shared_groups_plan(sets, 1, c.seq_len, 0, c.local_window + 1, true);
  EXPECT_FALSE(plan.copies.empty());
  EXPECT_LT(plan.cost(), causal_plan(1, c.seq_len, 0).cost() / 2);
  expect_twin_with(sets, c);
}

RC_GTEST_PROP(SparseAttention, EqualsTheComposedFormForAnyOptions, ()) {
  const Case c = any_case(1);
  const auto [worst, where] = difference_from_twin(c, kSparse);
  RC_LOG() << where << " differs by " << worst << " in " << c.str();
  RC_ASSERT(worst <= kTwinTolerance);
}

TEST(SparseAttention, HeadDimensionsOfPublishedModels) {
  for (const Index head_dim : {8, 12, 64, 80, 128, 256})
    expect_twin({.seq_len = 130, .head_dim = head_dim, .top_k = 1}, kSparse);
}

TEST(SparseAttention, AClassOfOneToken) {
  std::vector<std::uint64_t> sets(40, 1);
  sets[17] = 2;
  expect_twin_with(sets, {.seq_len = 40, .gated = false, .top_k = 1, .local_window = 3});
}

TEST(SparseAttention, WithoutGroupsTheLocalWindowAloneIsLeft) {
  const Case c{.seq_len = 150, .gated = false, .top_k = 1, .local_window = 5};
  const std::vector<Tensor> x = inputs_of(c);
  GateOptions gate = gate_of(c, x[3]);
  std::ranges::fill(gate.membership, std::uint64_t{0});
  AttentionOptions window = options_of(c);
  window.sliding_window = 6;
  EXPECT_LE(relative_difference(run(sparse_attention, c, x, gate).value(),
                                attention(x[0], x[1], x[2], window).value()),
            kTwinTolerance);
}

TEST(SparseAttention, ListsAreInTheOrderOfPositions) {
  const Case c{.batch = 2, .seq_len = 200, .groups = 8};
  const auto sets = top_sets(random_assignments(c), 2);
  constexpr Index kGap = 10;
  const AttentionPlan plan = shared_groups_plan(sets, c.batch, c.seq_len, 0, kGap, true);
  ASSERT_EQ(plan.own_rows(), 400);
  for (Index row = plan.own_rows(); row < static_cast<Index>(plan.tokens.size()); ++row)
    EXPECT_EQ(plan.token(row), plan.token(plan.own_row(row)));
  // What a query sees of its tiles are the tokens that share a group, those near it apart.
  std::vector<Index> expected(sets.size()), seen(sets.size());
  for (std::size_t i = 0; i < sets.size(); ++i)
    for (std::size_t j = i / 200 * 200; j + kGap <= i; ++j)
      if ((sets[i] & sets[j]) != 0) ++expected[i];
  for (const auto& tile : plan.query_tiles) {
    EXPECT_LE(tile.end_segment - tile.first_segment, 1);
    for (Index s = tile.first_segment; s < tile.end_segment; ++s)
      for (Index t = plan.segments[s].begin; t < plan.segments[s].end; ++t)
        for (Index q = tile.begin; q < tile.end; ++q) {
          const auto [begin, end] = plan.key_tiles[t];
          for (Index k = begin; k < end; ++k) {
            if (k > begin) {
              EXPECT_LT(plan.token(k - 1), plan.token(k));
            }
            if (plan.token(k) + kGap <= plan.token(q)) ++seen[plan.token(q)];
          }
        }
  }
  EXPECT_EQ(seen, expected);
}

TEST(SparseAttention, APlanCostsTheKeysThatItsQueriesSee) {
  const Case c{.batch = 2, .seq_len = 300, .groups = 4};
  const auto sets = top_sets(random_assignments(c), 2);
  const Index window = 120, gap = 10;
  const AttentionPlan plans[] = {shared_groups_plan(sets, c.batch, c.seq_len, window, gap, true),
                                 shared_groups_plan(sets, c.batch, c.seq_len, 0, gap),
                                 causal_plan(c.batch, c.seq_len, window),
                                 causal_plan(c.batch, c.seq_len, 0)};
  for (const AttentionPlan& plan : plans) {
    double all = 0;
    for (const auto& tile : plan.query_tiles) {
      double expected = 0;
      const Index lanes = (tile.end - tile.begin + 15) / 16 * 16;
      for (Index s = tile.first_segment; s < tile.end_segment; ++s) {
        const auto [first, last] = plan.segments[s];
        for (Index t = first; t < last; ++t) {
          const auto [begin, end] = plan.key_tiles[t];
          for (Index row = begin; row < end; ++row) {
            const Index token = plan.token(row);
            const bool seen = token <= plan.token(tile.end - 1) - plan.gap &&
                              (plan.window == 0 || token > plan.token(tile.begin) - plan.window);
            if (seen) expected += static_cast<double>(lanes + (plan.is_copy(row) ? 24 : 8));
          }
        }
      }
      EXPECT_EQ(plan.cost(tile), expected);
      all += expected;
    }
    EXPECT_EQ(plan.cost(), all);
    EXPECT_GT(all, 0);
  }
}

TEST(SparseAttention, ComputesFewerPairsThanDense) {
  const Case c{.seq_len = 2048, .groups = 8, .gated = false, .top_k = 1, .local_window = 32};
  const std::vector<Tensor> x = inputs_of(c);
  GateOptions gate = gate_of(c, x[3]);
  for (std::size_t i = 0; i < gate.membership.size(); ++i) gate.membership[i] = 1 << i % 8;
  const auto cost = [&](auto&& work) {
    const std::uint64_t before = multiply_adds();
    work();
    return static_cast<double>(multiply_adds() - before);
  };
  const double dense = cost([&] { attention(x[0], x[1], x[2], options_of(c)); });
  const double sparse = cost([&] { run(sparse_attention, c, x, gate); });
  EXPECT_LT(sparse, dense / 3.5);  // the mask's pairs alone would be about a sixth
}

TEST(SparseAttention, SameBitsForAnyThreads) {
  const Case c{.batch = 2, .seq_len = 500, .top_k = 2};
  const std::vector<Tensor> x = inputs_of(c);
  const GateOptions gate = gate_of(c, x[3]);
  expect_same_bits_for_any_threads("sparse_attention", [&] {
    return value_and_gradients(
        x, [&](const Variables& v) { return run(sparse_attention, c, v, gate); });
  });
}

TEST(SparseAttention, EarlierRowsKeepTheirBitsWhateverComesLater) {
  std::set<PairForm> forms;
  for (const auto& [seq_len, top_k, gate_kind] :
       {std::tuple{700, 1, Gate::affinity}, {700, 2, Gate::affinity}, {700, 2, Gate::logit}}) {
    const Case c{.seq_len = seq_len, .heads = 2, .groups = 6, .gate = gate_kind, .top_k = top_k};
    forms.insert(
        cheapest_form(seq_len, 6, top_k, 0, c.local_window + 1, gate_kind == Gate::affinity));
    std::vector<Tensor> x = inputs_of(c);
    GateOptions gate = gate_of(c, x[3]);
    const auto attend = [&] { return run(sparse_attention, c, x, gate).value(); };
    const Tensor before = attend();
    const Index cut = seq_len * 2 / 3, kept = before.size() / seq_len * cut;
    // All later tokens come into one class, which was among the smaller ones.
    for (Index t = cut; t < seq_len; ++t) gate.membership[t] = top_k == 1 ? 32 : 33;
    for (Tensor& tensor : x)
      for (Index i = tensor.size() / seq_len * cut; i < tensor.size(); ++i) tensor.data()[i] *= 2;
    const Tensor after = attend();
    EXPECT_TRUE(std::equal(before.data(), before.data() + kept, after.data())) << c.str();
  }
  EXPECT_EQ(forms.size(), 3U);
}

TEST(SparseAttention, Gradient) {
  for (const Gate gate : {Gate::logit, Gate::affinity}) {
    const Case c{.seq_len = 6, .head_dim = 2, .gate = gate, .top_k = 2, .local_window = 1};
    const std::vector<Tensor> inputs = inputs_of(c);
    const GateOptions options = gate_of(c, inputs[3]);
    expect_gradients([&](const Variables& v) { return run(sparse_attention, c, v, options); },
                     inputs);
  }
}

TEST(SparseAttention, AllGroupsAndNoGateIsDenseAttention) {
  const Case c{.batch = 2, .seq_len = 200, .heads = 4, .gated = false, .top_k = 3, .softcap = 2};
  const std::vector<Tensor> x = inputs_of(c);
  EXPECT_LE(relative_difference(run(sparse_attention, c, x, gate_of(c, x[3])).value(),
                                attention(x[0], x[1], x[2], options_of(c)).value()),
            kTwinTolerance);
}

TEST(SparseAttention, DroppedGateGivesAssignmentsNoGradient) {
  const Case c{.gated = false, .top_k = 1};
  const std::vector<Tensor> x = inputs_of(c);
  const Variable g = leaf(x[3]);
  EXPECT_FALSE(
      sparse_attention(x[0], x[1], x[2], g, options_of(c), gate_of(c, x[3])).requires_grad());
}

TEST(SparseAttention, RejectsMissingSets) {
  const Case c{.seq_len = 4};
  const std::vector<Tensor> x = inputs_of(c);
  EXPECT_THROW(run(sparse_attention, c, x, gate_of(c, x[3])), std::invalid_argument);
}

}  // namespace
}  // namespace focus
