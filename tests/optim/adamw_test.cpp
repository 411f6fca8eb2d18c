#include "optim/adamw.h"

#include <array>
#include <cmath>
#include <limits>

#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

NamedParameter parameter(const std::string& name, const Tensor& value, const Tensor& grad) {
  NamedParameter p{name, leaf(value)};
  if (grad.defined()) p.variable.set_grad(grad);
  return p;
}

TEST(LearningRate, WarmsUpThenFallsAlongACosine) {
  const OptimConfig config{.lr = 2, .warmup_steps = 4, .final_lr_ratio = 0.1};
  const std::int64_t steps = 25;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, steps), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3, steps), 2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 4, steps), 2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 14, steps), 2 * (0.1 + 0.9 / 2));  // half way
  EXPECT_DOUBLE_EQ(learning_rate(config, 24, steps), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100, steps), 0.2);
  for (std::int64_t s = 5; s < steps; ++s)
    EXPECT_LT(learning_rate(config, s, steps), learning_rate(config, s - 1, steps)) << s;
}

TEST(LearningRate, SchedulesAfterTheWarmUp) {
  OptimConfig config{.lr = 2, .warmup_steps = 4, .final_lr_ratio = 0.1};
  const auto expect_rates = [&](LrSchedule schedule, std::array<double, 6> wanted) {
    config.schedule = schedule;
    constexpr std::array<std::int64_t, 6> kSteps = {1, 4, 14, 21, 24, 30};
    for (std::size_t i = 0; i < kSteps.size(); ++i)
      EXPECT_NEAR(learning_rate(config, kSteps[i], 25), wanted[i], 1e-12) << kSteps[i];
  };
  expect_rates(LrSchedule::linear, {1, 2, 1.1, 2 - 1.8 * 0.85, 0.2, 0.2});
  expect_rates(LrSchedule::constant, {1, 2, 2, 2, 2, 2});
  expect_rates(LrSchedule::wsd, {1, 2, 2, 2 - 1.8 * 0.4, 0.2, 0.2});  // it falls from step 19 on
}

TEST(LearningRate, EdgeCases) {
  const OptimConfig none{.lr = 2, .warmup_steps = 0, .final_lr_ratio = 0};
  EXPECT_EQ(learning_rate(none, 0, 10), 2);
  EXPECT_NEAR(learning_rate(none, 9, 10), 0, 1e-15);
  EXPECT_EQ(learning_rate(none, 0, 1), 2);  // one step: its first is its last
  const OptimConfig longer{.lr = 2, .warmup_steps = 20};
  EXPECT_EQ(learning_rate(longer, 4, 5), 0.5);  // never beyond the warm-up
}

TEST(AdamW, ManyStepsAgreeWithTheFormula) {
  const OptimConfig config{.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.2};
  AdamW adamw({parameter("w", randn({5, 7}, 1), {})}, config);
  NamedParameter w = adamw.parameters()[0];
  const Tensor start = w.variable.value().clone();
  std::vector<double> p(start.span().begin(), start.span().end()), m(35), v(35);
  for (int t = 1; t <= 6; ++t) {
    const Tensor g = randn({5, 7}, 100 + static_cast<std::uint64_t>(t));
    const double lr = 0.05 / t;
    w.variable.set_grad(g);
    adamw.step(lr);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double gi = g[static_cast<Index>(i)];
      m[i] = 0.8 * m[i] + 0.2 * gi;
      v[i] = 0.9 * v[i] + 0.1 * gi * gi;
      p[i] = p[i] * (1 - lr * 0.2) - lr * (m[i] / (1 - std::pow(0.8, t))) /
                                         (std::sqrt(v[i] / (1 - std::pow(0.9, t))) + 1e-3);
    }
  }
  for (Index i = 0; i < 35; ++i) {
    EXPECT_NEAR(w.variable.value()[i], p[i], tolerance(2e-6, 1e-13));
    EXPECT_NEAR(adamw.moments()[0].m[i], m[i], tolerance(2e-6, 1e-13));
    EXPECT_NEAR(adamw.moments()[0].v[i], v[i], tolerance(2e-6, 1e-13));
  }
  EXPECT_EQ(adamw.steps(), 6);
}

TEST(AdamW, DecaysVectorsOnlyWhenAsked) {
  for (const bool decay_1d : {false, true}) {
    const OptimConfig config{.weight_decay = 0.5, .decay_1d = decay_1d};
    AdamW adamw({parameter("norm", Tensor::full({2}, 1), Tensor::zeros({2})),
                 parameter("weight", Tensor::full({1, 2}, 1), Tensor::zeros({1, 2}))},
                config);
    adamw.step(0.1);
    EXPECT_NEAR(adamw.parameters()[0].variable.value()[0], decay_1d ? 0.95 : 1, 1e-7);
    EXPECT_NEAR(adamw.parameters()[1].variable.value()[0], 0.95, 1e-7);
  }
}

TEST(AdamW, LeavesParametersWithoutGradientAlone) {
  const OptimConfig config{.weight_decay = 0.5};
  AdamW adamw({parameter("unused", Tensor::full({1, 2}, 1), {})}, config);
  adamw.step(0.1);
  EXPECT_EQ(adamw.parameters()[0].variable.value()[0], 1);
}

TEST(AdamW, ResumesFromItsMoments) {
  const OptimConfig config;
  const auto run = [&](AdamW& adamw, int first, int last) {
    for (int t = first; t < last; ++t) {
      NamedParameter p = adamw.parameters()[0];
      p.variable.set_grad(randn({3, 4}, 50 + static_cast<std::uint64_t>(t)));
      adamw.step(0.01);
    }
  };
  AdamW whole({parameter("w", randn({3, 4}, 1), {})}, config);
  run(whole, 0, 6);
  AdamW first({parameter("w", randn({3, 4}, 1), {})}, config);
  run(first, 0, 3);
  AdamW second({parameter("w", first.parameters()[0].variable.value(), {})}, config);
  second.moments()[0] = {first.moments()[0].m.clone(), first.moments()[0].v.clone()};
  second.set_steps(first.steps());
  run(second, 3, 6);
  EXPECT_TRUE(
      same_bits(second.parameters()[0].variable.value(), whole.parameters()[0].variable.value()));
}

TEST(Gradients, NormOfAllTogether) {
  NamedParameters p = {parameter("a", Tensor::zeros({2}), tensor_of({2}, {3, 0})),
                       parameter("none", Tensor::zeros({2}), {}),
                       parameter("b", Tensor::zeros({1}), tensor_of({1}, {-4}))};
  EXPECT_DOUBLE_EQ(gradient_norm(p), 5);
  p.push_back(parameter("large", Tensor::zeros({40000}), Tensor::full({40000}, 1)));
  EXPECT_DOUBLE_EQ(gradient_norm(p), std::sqrt(40025.0));
}

TEST(Gradients, ClipFactor) {
  EXPECT_EQ(clip_factor(5, 10), 1);
  EXPECT_EQ(clip_factor(5, 0), 1);  // no clipping
  EXPECT_DOUBLE_EQ(clip_factor(5, 1), 1 / (5 + 1e-6));
}

TEST(AdamW, StepScalesTheGradientsAndLeavesThemAlone) {
  const Tensor gradient = randn({3, 7}, 2);
  AdamW scaled({parameter("w", randn({3, 7}, 1), gradient.clone())}, {});
  AdamW plain({parameter("w", randn({3, 7}, 1), scale(Variable(gradient), Real(0.25)).value())},
              {});
  scaled.step(0.01, 0.25);
  plain.step(0.01);
  EXPECT_TRUE(
      same_bits(scaled.parameters()[0].variable.value(), plain.parameters()[0].variable.value()));
  EXPECT_TRUE(same_bits(scaled.parameters()[0].variable.grad(), gradient));
}

TEST(Gradients, FirstNonFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  NamedParameters p = {parameter("fine", Tensor::zeros({2}), tensor_of({2}, {3, 4})),
                       parameter("none", Tensor::zeros({2}), {})};
  EXPECT_EQ(first_nonfinite_gradient(p), "");
  p.push_back(parameter("bad", Tensor::zeros({2}), tensor_of({2}, {0, -inf})));
  p.push_back(parameter("worse", Tensor::zeros({1}), tensor_of({1}, {std::nan("")})));
  EXPECT_EQ(first_nonfinite_gradient(p), "bad");
}

TEST(OptimConfig, RefusesByName) {
  const std::vector<std::pair<const char*, OptimConfig>> wrong = {
      {"lr", {.lr = 0}},
      {"lr", {.lr = std::nan("")}},
      {"beta1", {.beta1 = 1}},
      {"beta2", {.beta2 = -0.1}},
      {"eps", {.eps = 0}},
      {"weight_decay", {.weight_decay = -1}},
      {"clip_norm", {.clip_norm = -1}},
      {"warmup_steps", {.warmup_steps = -1}},
      {"final_lr_ratio", {.final_lr_ratio = 1.5}},
  };
  EXPECT_NO_THROW(OptimConfig{}.validate());
  for (const auto& [key, config] : wrong) {
    EXPECT_THROW(config.validate(), std::invalid_argument) << key;
    const std::string error = error_of([&, c = config] { c.validate(); });
    EXPECT_NE(error.find(std::string("optim.") + key + " "), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace focus
