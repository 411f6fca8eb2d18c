#pragma once

#include "optim/training_step.h"
#include "tests/support/golden_model.h"

// Training curves of PyTorch's AdamW in golden files: tokens, losses, grad_norms, learning_rates
// and the settings in attributes hyper_*.
namespace focus {

inline OptimConfig optim_config(const GoldenFile& file) {
  OptimConfig config;
  config.lr = file.attribute("hyper_lr");
  config.beta1 = file.attribute("hyper_beta1");
  config.beta2 = file.attribute("hyper_beta2");
  config.eps = file.attribute("hyper_eps");
  config.weight_decay = file.attribute("hyper_weight_decay");
  config.decay_1d = true;  // PyTorch's one parameter group
  config.clip_norm = file.attribute("hyper_clip_norm");
  config.warmup_steps = static_cast<std::int64_t>(file.attribute("hyper_warmup"));
  config.final_lr_ratio = file.attribute("hyper_final_lr_ratio");
  return config;
}

/// Runs the file's batches and compares the curves.
inline void run_curve(const GoldenFile& file, const Decoder& decoder, NamedParameters parameters) {
  const OptimConfig config = optim_config(file);
  AdamW adamw(std::move(parameters), config);
  const auto dims = file.dims("tokens");  // [steps, batch, seq_len]
  const auto tokens = file.ids("tokens");
  const auto losses = file.numbers("losses"), norms = file.numbers("grad_norms"),
             rates = file.numbers("learning_rates");
  const auto size = static_cast<std::size_t>(dims[1] * dims[2]);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const auto ids = std::span(tokens).subspan(step * size, size);
    const StepResult result =
        training_step(adamw, {config, 0, dims[0]}, static_cast<std::int64_t>(step), 1,
                      [&](int) { return decoder.loss(ids, dims[1]); });
    EXPECT_NEAR(result.loss, losses[step], 1e-5 * losses[step]) << "loss at step " << step;
    EXPECT_NEAR(result.grad_norm, norms[step], 1e-3 * norms[step])
        << "gradient norm at step " << step;
    // Exactly, in the float32 that the file holds.
    EXPECT_EQ(static_cast<float>(result.lr), static_cast<float>(rates[step]))
        << "learning rate at step " << step;
  }
}

inline void expect_near(const std::string& name, std::span<const Real> actual,
                        const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(actual[i]) - expected[i]));
  EXPECT_LE(worst, 1e-3) << "final " << name;
}

}  // namespace focus
