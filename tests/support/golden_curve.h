#pragma once

#include "focus/training/session.h"
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

/// Runs the file's batches through a session and compares the curves. `model` has its adapters on.
inline Session run_curve(const GoldenFile& file, RunConfig config, LoadedModel model) {
  const auto dims = file.dims("tokens");  // [steps, batch, seq_len]
  const auto losses = file.numbers("losses"), norms = file.numbers("grad_norms"),
             rates = file.numbers("learning_rates");
  config.steps = dims[0];
  config.optim = optim_config(file);
  config.data.batch = dims[1];
  config.data.context = dims[2];
  const auto vocab_size = static_cast<std::int32_t>(model.decoder->config().vocab_size);
  Batches batches(TokenView(TokenFile::from_tokens(file.ids("tokens"), {}, vocab_size)),
                  {.batch = dims[1], .context = dims[2], .shuffle = false});
  Session session(config, std::move(model), {.train = std::move(batches)});
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const StepResult result = session.step().result;
    EXPECT_NEAR(result.loss, losses[step], 1e-5 * losses[step]) << "loss at step " << step;
    EXPECT_NEAR(result.grad_norm, norms[step], 1e-3 * norms[step])
        << "gradient norm at step " << step;
    // Exactly, in the float32 that the file holds.
    EXPECT_EQ(static_cast<float>(result.lr), static_cast<float>(rates[step]))
        << "learning rate at step " << step;
  }
  return session;
}

/// A golden folder's decoder as a model that a session takes.
inline LoadedModel golden_loaded(const std::string& folder, const ModelConfig& config) {
  LoadedModel model;
  model.where = folder;
  model.decoder = std::make_unique<Decoder>(golden_decoder(folder, config));
  return model;
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
