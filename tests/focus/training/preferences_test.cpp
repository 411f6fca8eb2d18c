// Direct preference optimisation: the loss written out, its gradient, and runs that learn from it.
#include "focus/training/preferences.h"

#include <gtest/gtest.h>

#include <cmath>

#include "focus/training/fit.h"
#include "focus/training/training.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_session.h"

namespace focus {
namespace {

/// Pairs of a shared prompt of three tokens and two answers of other lengths.
Batches pairs_of(Index count, const RunConfig& config, std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  std::vector<Index> offsets = {0};
  std::vector<std::uint8_t> counts;
  const auto random = random_ids(64 * count, kTinyVocabulary, static_cast<int>(seed));
  for (Index i = 0; i < count; ++i)
    for (const Index answer : {4 + i % 3, 2 + i % 5}) {
      for (Index t = 0; t < 3 + answer; ++t) {
        ids.push_back(random[64 * i + (t < 3 ? t : 3 + answer + t)]);
        counts.push_back(t < 3 ? 0 : 1);
      }
      offsets.push_back(static_cast<Index>(ids.size()));
    }
  return Batches(TokenView(TokenFile::from_tokens(ids, offsets, kTinyVocabulary, {}, counts)),
                 {.batch = config.data.batch,
                  .context = config.data.context,
                  .seed = seed,
                  .vocab_size = kTinyVocabulary,
                  .pairs = true});
}

RunConfig dpo_run(Method method) {
  RunConfig config = tiny_run(method);
  config.objective = RunObjective::dpo;
  config.lora.r = 2;
  config.steps = 30;
  return config;
}

Session dpo_session(const RunConfig& config) {
  LoadedModel model = tiny_loaded();
  Rng rng(static_cast<std::uint64_t>(config.seed));
  attach_adapters(config, model, rng);
  TrainingData data{
      .train = pairs_of(12, config, 5), .valid = pairs_of(3, config, 9), .fingerprint = "pairs"};
  return Session(config, std::move(model), std::move(data),
                 config.needs_teacher() ? std::move(tiny_loaded().decoder) : nullptr);
}

TEST(Preferences, LossAndGradientAreThoseWrittenOut) {
  const LoadedModel model = tiny_loaded();
  const Decoder& decoder = *model.decoder;
  RunConfig config = dpo_run(Method::lora);
  config.data.batch = 3;
  const Batch batch = pairs_of(3, config, 4).windows(0, 3);
  ASSERT_EQ(batch.documents.size(), 7u);
  const Index tokens = std::ssize(batch.ids), width = decoder.config().hidden_size;
  const Tensor start = randn({tokens, width}, 1), reference = randn({tokens, width}, 2);
  const auto targets = batch.targets();
  constexpr double kBeta = 0.3;

  // The mean losses of each document, and with them margins and gradients in double.
  std::vector<Tensor> gradients;
  std::vector<double> own, before, learned;
  for (std::size_t d = 0; d + 1 < batch.documents.size(); ++d) {
    std::vector<std::int32_t> of(targets.size(), -1);
    std::copy(targets.begin() + batch.documents[d], targets.begin() + batch.documents[d + 1],
              of.begin() + batch.documents[d]);
    learned.push_back(
        static_cast<double>(std::ranges::count_if(of, [](auto t) { return t >= 0; })));
    Variable hidden(start.clone());
    hidden.set_requires_grad(true);
    const Variable loss = decoder.cross_entropy(hidden, of);
    backward(loss);
    gradients.push_back(hidden.grad());
    own.push_back(-learned.back() * static_cast<double>(loss.value()[0]));
    before.push_back(-learned.back() *
                     static_cast<double>(decoder.cross_entropy(reference, of).value()[0]));
  }
  double loss = 0, margins = 0;
  std::vector<double> gradient(start.size());
  for (const std::size_t d : {0, 2, 4}) {
    const double margin = kBeta * (own[d] - own[d + 1] - before[d] + before[d + 1]);
    loss += std::log1p(std::exp(-margin)) / 3;
    margins += margin / 3;
    const double slope = kBeta / (1 + std::exp(margin)) / 3;
    for (Index i = 0; i < start.size(); ++i)
      gradient[i] += slope * (learned[d] * static_cast<double>(gradients[d][i]) -
                              learned[d + 1] * static_cast<double>(gradients[d + 1][i]));
  }

  Variable hidden(start.clone());
  hidden.set_requires_grad(true);
  PreferenceFigures figures;
  const Variable made = preference_loss(decoder, hidden, reference, nullptr, batch, kBeta, figures);
  EXPECT_NEAR(static_cast<double>(made.value()[0]), loss, 1e-4 * loss);
  EXPECT_NEAR(figures.loss, loss, 1e-4 * loss);
  EXPECT_NEAR(figures.margin, margins, 1e-4 * std::abs(margins));
  backward(made);
  double far = 0, size = 0;
  for (Index i = 0; i < start.size(); ++i) {
    far += std::pow(static_cast<double>(hidden.grad()[i]) - gradient[i], 2);
    size += gradient[i] * gradient[i];
  }
  EXPECT_LT(std::sqrt(far / size), 1e-4);
}

TEST(Preferences, ARunBeginsAtTheReferenceAndLearnsTheChosenAnswers) {
  for (const Method method : {Method::lora, Method::full}) {
    RunConfig config = dpo_run(method);
    config.optim.lr = method == Method::lora ? 0.02 : 0.003;
    Session session = dpo_session(config);
    const double start = *session.validate();
    EXPECT_NEAR(start, std::log(2), 1e-6);  // no margin yet
    StepReport last;
    while (!session.finished()) last = session.step();
    ASSERT_TRUE(last.preferences);
    EXPECT_EQ(last.preferences->accuracy, 1);
    EXPECT_GT(last.preferences->margin, 0.2);
    EXPECT_LT(last.result.loss, start - 0.1);
    session.validate();
    EXPECT_TRUE(session.validated().accuracy);
  }
}

TEST(Preferences, AResumedRunHasTheSameBits) {
  RunConfig config = dpo_run(Method::lora);
  config.steps = 6;
  const TempFolder temp;
  config.out = (temp.path() / "run").string();
  Session whole = dpo_session(config), first = dpo_session(config), second = dpo_session(config);
  run_training(whole);
  run_training_in_folder(first, {}, {.should_stop = [&] { return first.steps() == 2; }});
  const TrainingResult done = run_training_in_folder(second, {.resume = true});
  EXPECT_TRUE(done.finished && done.validated.accuracy);
  EXPECT_TRUE(changed(parameters_of(whole), parameters_of(second)).empty());
}

TEST(Preferences, WhatCannotBeIsRefusedByName) {
  RunConfig config = dpo_run(Method::lora);
  config.data.packing = Packing::documents;
  EXPECT_THROW(config.validate_step(), std::invalid_argument);
  config = dpo_run(Method::scratch);
  EXPECT_THROW(config.validate_step(), std::invalid_argument);
  config = dpo_run(Method::lora);
  config.base = "base.h5";
  config.data.train = {"pairs.jsonl"};
  config.data.valid_fraction = 0;
  config.validate();
  config.data.mix = {1};  // the last repetition of a source may end within a pair
  EXPECT_THROW(config.validate(), std::invalid_argument);
  config.dpo_beta = 0;
  EXPECT_THROW(config.validate_step(), std::invalid_argument);
}

}  // namespace
}  // namespace focus
