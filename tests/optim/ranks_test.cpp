#include "optim/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "autograd/ops.h"
#include "optim/training_step.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/thread_ranks.h"

namespace focus {
namespace {

constexpr int kParts = 5;
const OptimConfig kConfig{.lr = 0.1, .clip_norm = 1, .warmup_steps = 0};

struct Outcome {
  StepResult result;
  std::vector<Tensor> weights;
};

/// Two steps of three weights: one that all parts use, one that the odd parts use, one that none
/// does.
Outcome two_steps(Ranks& ranks) {
  const Variable all = leaf(randn({7, 3}, 1)), odd = leaf(randn({3, 3}, 2)),
                 none = leaf(randn({2}, 3));
  AdamW adamw({{"all", all}, {"odd", odd}, {"none", none}}, kConfig);
  Outcome outcome;
  for (int step = 0; step < 2; ++step)
    outcome.result = training_step(
        adamw, {kConfig, 0, 10}, step, kParts,
        [&](int part) {
          EXPECT_TRUE(ranks.owns(part));
          const auto seed = static_cast<std::uint64_t>(10 + step * kParts + part);
          const Variable own =
              linear_cross_entropy(randn({4, 3}, seed), all, random_ids(4, 7, seed));
          return part % 2 == 0 ? own
                               : add(own, linear_cross_entropy(randn({4, 3}, seed), odd,
                                                               random_ids(4, 3, seed)));
        },
        ranks);
  outcome.weights = {all.value(), odd.value(), none.value()};
  return outcome;
}

TEST(Ranks, AnyNumberOfProcessesMakesTheSameStep) {
  Ranks alone;
  const Outcome wanted = two_steps(alone);
  EXPECT_FALSE(same_bits(wanted.weights[0], randn({7, 3}, 1)));
  EXPECT_FALSE(same_bits(wanted.weights[1], randn({3, 3}, 2)));
  for (const int count : {2, 3, kParts})
    ThreadRanks::run(count, [&](Ranks& ranks) {
      const Outcome outcome = two_steps(ranks);
      EXPECT_EQ(outcome.result.loss, wanted.result.loss);
      EXPECT_EQ(outcome.result.grad_norm, wanted.result.grad_norm);
      for (std::size_t i = 0; i < wanted.weights.size(); ++i)
        EXPECT_TRUE(same_bits(outcome.weights[i], wanted.weights[i])) << count << " " << i;
    });
}

TEST(Ranks, ALossThatIsNotFiniteStopsAllOfThemBeforeTheStep) {
  ThreadRanks::run(3, [&](Ranks& ranks) {
    const Variable w = leaf(Tensor::full({2}, 1));
    AdamW adamw({{"w", w}}, kConfig);
    try {
      training_step(
          adamw, {kConfig, 0, 10}, 7, kParts,
          [&](int part) { return scale(w, part == 1 ? Real(INFINITY) : Real(1)); }, ranks);
      ADD_FAILURE() << "process " << ranks.rank() << " went on";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("step 7: the loss is inf"));
    }
    EXPECT_EQ(w.value()[0], 1);
  });
}

TEST(Ranks, PartsComeTogetherInTheirOrder) {
  ThreadRanks::run(3, [](Ranks& ranks) {
    std::vector<std::vector<double>> mine;
    for (int part = 0; part < kParts; ++part)
      if (ranks.owns(part)) mine.emplace_back(static_cast<std::size_t>(part), part);
    const auto all = gather_parts(ranks, kParts, mine);
    ASSERT_EQ(all.size(), std::size_t{kParts});
    for (int part = 0; part < kParts; ++part) EXPECT_EQ(all[part], std::vector<double>(part, part));
  });
}

}  // namespace
}  // namespace focus
