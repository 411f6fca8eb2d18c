#include "focus/adapters/baselines/window_attention.h"

#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

Variable run(const Variables& x, const AttentionOptions& options, Index local_window) {
  return window_attention(x[0], x[1], x[2], options, {.local_window = local_window});
}

TEST(WindowAttention, AttendsTheLastTokensOnly) {
  for (const Index sliding : {Index{0}, Index{5}, Index{40}})
    for (const Real softcap : {Real(0), Real(2)}) {
      const auto x = inputs_of({.heads = 4});
      const AttentionOptions options{
          .scale = Real(0.4), .softcap = softcap, .sliding_window = sliding};
      const Tensor expected = naive_attention(x, [&](const NaiveQuery& q, Index j) {
        return q.token - j <= 8 && q.sees(j, options) ? std::exp(q.score(j, options)) : 0;
      });
      EXPECT_LE(relative_difference(run({x[0], x[1], x[2]}, options, 8).value(), expected),
                tolerance(1e-5, 1e-12));
    }
}

TEST(WindowAttention, IsDenseWhereItHoldsEveryToken) {
  const auto x = inputs_of({});
  const AttentionOptions options{.scale = Real(0.4)};
  EXPECT_TRUE(same_bits(run({x[0], x[1], x[2]}, options, 69).value(),
                        attention(x[0], x[1], x[2], options).value()));
}

TEST(WindowAttention, Gradient) {
  expect_gradients([](const Variables& x) { return run(x, {.scale = Real(0.4)}, 3); },
                   inputs_of({.batch = 1, .seq_len = 9, .head_dim = 3}));
}

TEST(WindowAttention, CountsItsPairs) {
  const PairCounts counts = count_window_pairs(10, 2, 0);
  EXPECT_EQ(counts.all, 55);
  EXPECT_EQ(counts.attended, 1 + 2 + 8 * 3);
  EXPECT_EQ(count_window_pairs(10, 2, 2).attended, 1 + 9 * 2);
  EXPECT_EQ(count_window_pairs(10, 29, 0).attended, 55);
}

TEST(WindowAttention, RefusesADistanceBelowZero) {
  EXPECT_NO_THROW(WindowConfig{.local_window = 0}.validate());  // the token itself
  EXPECT_THROW(WindowConfig{.local_window = -1}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace focus
