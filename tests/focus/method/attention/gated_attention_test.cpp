#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <bit>

#include "focus/method/attention/focus_attention.h"
#include "focus/method/grouping/group_statistics.h"
#include "tests/support/attention_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

const FocusAttention kGated = gated_attention;

TEST(GatedAttention, EqualsTheComposedForm) { sweep_twins({{0, true}}, kGated); }

TEST(GatedAttention, EqualsTheComposedFormBeyondTheKeysOfOnePass) {
  for (const Gate gate : {Gate::logit, Gate::affinity})
    expect_twin({.seq_len = 420,
                 .heads = 8,
                 .kv_heads = 4,
                 .head_dim = 256,
                 .gate = gate,
                 .local_window = 40},
                kGated);
}

/// The same cases in every run, unless RC_PARAMS asks for others.
[[maybe_unused]] const bool kFixedSeed =
    setenv("RC_PARAMS", "seed=2604 max_success=80 max_size=100", 0) == 0;

RC_GTEST_PROP(GatedAttention, EqualsTheComposedFormForAnyOptions, ()) {
  Case c = any_case(0);
  c.top_k = 0;
  const auto [worst, where] = difference_from_twin(c, kGated);
  RC_LOG() << where << " differs by " << worst << " in " << c.str();
  RC_ASSERT(worst <= kTwinTolerance);
}

TEST(GatedAttention, Gradient) {
  for (const Gate gate : {Gate::logit, Gate::affinity})
    for (const double softcap : {0.0, 1.5}) {
      const Case c{
          .seq_len = 6, .head_dim = 2, .gate = gate, .local_window = 1, .softcap = softcap};
      const std::vector<Tensor> inputs = inputs_of(c);
      const GateOptions options = gate_of(c, inputs[3]);
      expect_gradients([&](const Variables& v) { return run(gated_attention, c, v, options); },
                       inputs);
    }
}

TEST(GatedAttention, AWindowThatCoversAllIsDenseAttention) {
  for (const Gate gate : {Gate::logit, Gate::affinity}) {
    const Case c{.seq_len = 130, .gate = gate, .local_window = 129};
    const std::vector<Tensor> x = inputs_of(c);
    EXPECT_TRUE(same_bits(run(gated_attention, c, x, gate_of(c, x[3])).value(),
                          attention(x[0], x[1], x[2], options_of(c)).value()));
  }
}

/// 1 for the token's highest group, 0 for the others.
Tensor one_hot_assignments(const Tensor& g) {
  const auto sets = top_sets(g, 1);
  Tensor one_hot = Tensor::zeros(g.shape());
  for (std::size_t i = 0; i < sets.size(); ++i)
    one_hot.data()[static_cast<Index>(i) * g.cols() + std::countr_zero(sets[i])] = 1;
  return one_hot;
}

TEST(GatedAttention, SoftAffinityOfOneHotAssignmentsIsHardAttention) {
  const Case c{.batch = 2, .seq_len = 150};
  std::vector<Tensor> x = inputs_of(c);
  const auto sets = top_sets(x[3], 1);
  x[3] = one_hot_assignments(x[3]);
  GateOptions soft = gate_of(c, x[3]), hard = soft;
  soft.affinity_floor = 1e-30;
  hard.gated = false;
  hard.membership = sets;
  EXPECT_LE(relative_difference(run(gated_attention, c, x, soft).value(),
                                run(sparse_attention, c, x, hard).value()),
            tolerance(2e-5, 1e-12));
}

TEST(GatedAttention, TheHighestScoreMayHaveTheSmallestWeight) {
  const Case c{.seq_len = 150, .local_window = 3};
  std::vector<Tensor> x = sharp_inputs_of(c);
  x[3] = one_hot_assignments(x[3]);  // all pairs of two groups have the weight of the floor
  GateOptions gate = gate_of(c, x[3]);
  for (const double floor : {1e-30, 1e-6}) {
    gate.affinity_floor = floor;
    expect_twin(c, kGated, x, gate, kSharpTolerance);
  }
}

TEST(GatedAttention, KeepsMemoryLinearInLength) {
  for (const Index seq_len : {256, 512}) {
    const Case c{.seq_len = seq_len, .head_dim = 8, .groups = 4};
    const std::vector<Tensor> inputs = inputs_of(c);
    const Variables x = leaves(inputs);
    const std::size_t before = pool_stats().live;
    const Variable out = run(gated_attention, c, x, gate_of(c, inputs[3]));
    EXPECT_EQ(pool_stats().live - before,
              static_cast<std::size_t>(seq_len * 2 * (8 + 1)) * sizeof(Real));
  }
}

TEST(GatedAttention, BitsDoNotDependOnThreads) {
  for (const Gate gate : {Gate::logit, Gate::affinity}) {
    const Case c{.batch = 2, .seq_len = 203, .heads = 4, .head_dim = 5, .gate = gate, .softcap = 2};
    expect_same_bits_for_any_threads(c.str(), [&] {
      const std::vector<Tensor> inputs = inputs_of(c);
      return value_and_gradients(inputs, [&](const Variables& x) {
        return run(gated_attention, c, x, gate_of(c, inputs[3]));
      });
    });
  }
}

TEST(GatedAttention, EqualsTheComposedFormOverSeveralTiles) {
  for (const Gate gate : {Gate::logit, Gate::affinity})
    for (const Index head_dim : {8, 12, 64, 80, 128, 256})
      expect_twin({.seq_len = 300,
                   .heads = 4,
                   .head_dim = head_dim,
                   .groups = 8,
                   .gate = gate,
                   .local_window = 100,
                   .sliding_window = head_dim == 64 ? 220 : 0},
                  kGated);
}

TEST(GatedAttention, RejectsWhatDoesNotFit) {
  const Case c{.seq_len = 5};
  const std::vector<Tensor> x = inputs_of(c);
  GateOptions gate = gate_of(c, x[3]);
  for (const Shape& wrong : {Shape{1, 4, 3}, Shape{2, 5, 3}, Shape{5, 3}})
    EXPECT_THROW(gated_attention(x[0], x[1], x[2], Tensor::zeros(wrong), {}, gate),
                 std::invalid_argument);
  gate.membership.assign(5, 1);
  EXPECT_THROW(gated_attention(x[0], x[1], x[2], x[3], {}, gate), std::invalid_argument);
}

PairCounts count_one_by_one(std::span<const std::uint64_t> sets, Index seq_len, Index local,
                            Index sliding, Index sinks = 0) {
  PairCounts counts;
  for (Index i = 0; i < seq_len; ++i)
    for (Index j = 0; j <= i; ++j) {
      if (sliding > 0 && i - j >= sliding) continue;
      const bool distant = i - j > local && j >= sinks;
      ++counts.all;
      counts.distant += distant;
      counts.attended += !distant || sets.empty() || (sets[i] & sets[j]) != 0;
    }
  return counts;
}

bool same_counts(const PairCounts& a, const PairCounts& b) {
  return a.all == b.all && a.distant == b.distant && a.attended == b.attended;
}

TEST(CountPairs, EqualsCountingOneByOne) {
  for (const Index seq_len : {1, 5, 70, 200})
    for (const Index local : {0, 3, 64, 500})
      for (const Index sliding : {0, 1, 10, 150})
        for (const int top_k : {0, 1, 2}) {
          std::vector<std::uint64_t> sets;
          if (top_k > 0) sets = top_sets(softmax(randn({1, seq_len, 4}, 3)).value(), top_k);
          EXPECT_TRUE(same_counts(count_pairs(sets, seq_len, local, sliding),
                                  count_one_by_one(sets, seq_len, local, sliding)))
              << fmt::format("T {} w {} sliding {} k {}", seq_len, local, sliding, top_k);
        }
}

RC_GTEST_PROP(CountPairs, EqualsCountingOneByOneForAnySets, ()) {
  const int groups = *rc::gen::inRange(1, 65);
  const auto sets = *rc::gen::container<std::vector<std::uint64_t>>(
      rc::gen::map(rc::gen::arbitrary<std::uint64_t>(),
                   [groups](std::uint64_t bits) { return bits >> (64 - groups); }));
  const auto seq_len = static_cast<Index>(sets.size());
  const Index local = *rc::gen::inRange(0, 2 + static_cast<int>(seq_len));
  const Index sliding = *rc::gen::inRange(0, 2 + static_cast<int>(seq_len));
  const Index sinks = *rc::gen::inRange(0, 2 + static_cast<int>(seq_len));
  RC_ASSERT(same_counts(count_pairs(sets, seq_len, local, sliding),
                        count_one_by_one(sets, seq_len, local, sliding)));
  // A query without groups attends no sink that is distant.
  std::vector<std::uint64_t> some = sets;
  for (std::uint64_t& set : some) set |= 1 << (groups - 1) % 8;
  RC_ASSERT(same_counts(
      count_pairs(some, seq_len, local, sliding, sinks),
      count_one_by_one(with_sinks(some, seq_len, sinks), seq_len, local, sliding, sinks)));
}

TEST(CountPairs, RejectsSetsOfAnotherLength) {
  EXPECT_THROW(count_pairs(std::vector<std::uint64_t>{1, 2}, 3, 0, 0), std::invalid_argument);
}

}  // namespace
}  // namespace focus
