#include "optim/training_step.h"

#include <cmath>
#include <limits>

#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

const OptimConfig kConfig{.lr = 0.1, .clip_norm = 1, .warmup_steps = 0};

struct OneWeight {
  Variable w = leaf(randn({5, 3}, 1));
  AdamW adamw{{{"w", w}}, kConfig};
};

Variable batch_loss(const Variable& w, const Tensor& x, std::span<const std::int32_t> targets) {
  return linear_cross_entropy(x, w, targets);
}

TEST(TrainingStep, AccumulationEqualsOneBigBatch) {
  const Tensor x = randn({8, 3}, 2);
  const auto targets = random_ids(8, 5, 3);
  OneWeight big, small;
  const StepResult whole = training_step(big.adamw, {kConfig, 0, 10}, 0, 1,
                                         [&](int) { return batch_loss(big.w, x, targets); });
  const StepResult parts = training_step(small.adamw, {kConfig, 0, 10}, 0, 4, [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    return batch_loss(small.w, Tensor::from({2, 3}, x.span().subspan(at * 6, 6)),
                      std::span(targets).subspan(at * 2, 2));
  });
  EXPECT_NEAR(parts.loss, whole.loss, tolerance(1e-6, 1e-14));
  EXPECT_NEAR(parts.grad_norm, whole.grad_norm, tolerance(1e-6, 1e-14));
  EXPECT_EQ(parts.lr, whole.lr);
  EXPECT_LE(relative_difference(small.w.value(), big.w.value()), tolerance(1e-5, 1e-13));
  EXPECT_FALSE(same_bits(big.w.value(), randn({5, 3}, 1)));
}

TEST(TrainingStep, StartsFromZeroGradientsAndReportsTheNormBeforeClipping) {
  OneWeight run, by_hand;
  run.w.set_grad(Tensor::full({5, 3}, 1e6));
  const StepResult result =
      training_step(run.adamw, {kConfig, 0, 10}, 0, 1, [&](int) { return scale(run.w, 2); });
  EXPECT_NEAR(result.grad_norm, 2 * std::sqrt(15.0), 1e-6);
  EXPECT_EQ(result.lr, 0.1);
  by_hand.w.set_grad(Tensor::full({5, 3}, 2));
  by_hand.adamw.step(result.lr, clip_factor(result.grad_norm, kConfig.clip_norm));
  EXPECT_TRUE(same_bits(run.w.value(), by_hand.w.value()));
  EXPECT_NEAR(run.adamw.moments()[0].m[0], 0.1 / std::sqrt(15.0), 1e-6);  // of a norm of 1
}

/// The error of a step; w must be as it was.
std::string refused_step(int micro_batches,
                         const std::function<Variable(const Variable&, int)>& loss) {
  OneWeight run;
  const Tensor before = run.w.value().clone();
  const auto step = [&] {
    training_step(run.adamw, {kConfig, 0, 100}, 17, micro_batches,
                  [&](int i) { return loss(run.w, i); });
  };
  EXPECT_THROW(step(), std::runtime_error);
  const std::string error = error_of(step);
  EXPECT_TRUE(same_bits(run.w.value(), before));
  EXPECT_EQ(run.adamw.steps(), 0);
  return error;
}

TEST(TrainingStep, NonFiniteLossChangesNothing) {
  const std::string error = refused_step(2, [](const Variable& w, int i) {
    return scale(w, i == 0 ? Real(1) : std::numeric_limits<Real>::infinity());
  });
  EXPECT_NE(error.find("step 17"), std::string::npos) << error;
  EXPECT_NE(error.find("loss"), std::string::npos) << error;
}

TEST(TrainingStep, NonFiniteGradientNamesItsTensor) {
  // A finite loss whose gradient is 0 * infinity.
  const std::string error = refused_step(1, [](const Variable& w, int) {
    return Variable::from_op("bad", Tensor::full({1}, 1), {w}, [](const Tensor&, Grads grads) {
      grads[0].add(Tensor::full({5, 3}, std::numeric_limits<Real>::quiet_NaN()));
    });
  });
  EXPECT_NE(error.find("step 17"), std::string::npos) << error;
  EXPECT_NE(error.find("gradient of w "), std::string::npos) << error;
}

}  // namespace
}  // namespace focus
