// Training on windows of documents, of which some tokens are learned: what a step's loss is, that
// every method goes, and what is refused.
#include <gtest/gtest.h>

#include "focus/evaluation/attention_spec.h"
#include "focus/training/fit.h"
#include "focus/training/training.h"
#include "tests/support/compare.h"
#include "tests/support/packed_documents.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_session.h"

namespace focus {
namespace {

/// Examples of 4 to 15 tokens, the second half of each learned.
Batches examples(Index batch, std::uint64_t seed, bool shuffle = true) {
  Rng rng(seed);
  std::vector<Index> offsets = {0};
  std::vector<std::uint8_t> counts;
  for (int i = 0; i < 60; ++i) {
    const Index length = 4 + static_cast<Index>(rng.below(12));
    for (Index t = 0; t < length; ++t) counts.push_back(2 * t >= length);
    offsets.push_back(offsets.back() + length);
  }
  const auto ids = random_ids(offsets.back(), kTinyVocabulary, static_cast<int>(seed));
  return Batches(TokenView(TokenFile::from_tokens(ids, offsets, kTinyVocabulary, {}, counts)),
                 {.batch = batch,
                  .context = 16,
                  .shuffle = shuffle,
                  .seed = seed,
                  .vocab_size = kTinyVocabulary});
}

Session session_of(const RunConfig& config, const std::string& family = "gpt2") {
  LoadedModel model = tiny_loaded(family);
  Rng rng(static_cast<std::uint64_t>(config.seed));
  attach_adapters(config, model, rng);
  return Session(config, std::move(model),
                 {.train = examples(config.data.batch, 5),
                  .valid = examples(1, 9, false),
                  .fingerprint = "examples"});
}

RunConfig focus_run(Training training) {
  RunConfig config = tiny_run();
  config.focus.training = training;
  config.focus.summary.block = 2;
  return config;
}

RunConfig window_run() {
  RunConfig config = tiny_run(Method::full);
  config.attention = {.name = "window", .settings = parse_attention("window:5").settings};
  return config;
}

std::vector<std::pair<std::string, RunConfig>> runs() {
  RunConfig by_layer = keys_run(), by_logits = keys_run();
  by_layer.focus.objective = Objective::layer_distillation;
  by_logits.focus.objective = Objective::logit_distillation;
  return {{"lora", tiny_run(Method::lora)},
          {"full", tiny_run(Method::full)},
          {"two phases", tiny_run(Method::two_phase)},
          {"soft Focus", focus_run(Training::soft)},
          {"hard Focus", focus_run(Training::hard)},
          {"summary of tokens", focus_run(Training::summary)},
          {"groups of keys", keys_run()},
          {"groups of keys, distilled by layer", by_layer},
          {"groups of keys, distilled by logits", by_logits},
          {"window", window_run()}};
}

std::vector<Tensor> values_of(Session& session) {
  std::vector<Tensor> values;
  for (const auto& [name, value] : parameters_of(session)) values.push_back(value);
  return values;
}

/// Calls f(make a session) for every run, on documents and on one stream of tokens.
void for_every_run(const std::function<void(const std::function<Session()>&)>& f) {
  for (const auto& [name, config] : runs()) {
    SCOPED_TRACE(name);
    f([&, config = config] { return session_of(config); });
    f([&, config = config] { return tiny_session(config); });
  }
}

TEST(DocumentsSession, AStepsLossIsTheMeanOverAllThatIsLearned) {
  RunConfig config = tiny_run(Method::lora);
  config.data.batch = 1;
  config.data.gradient_accumulation_steps = 3;
  Session session = session_of(config);
  const Decoder before = tiny_decoder("gpt2");  // LoRA adds nothing at first
  Batches batches = examples(1, 5);
  double nats = 0;
  Index tokens = 0, seen = 0;
  for (int part = 0; part < 3; ++part) {
    const NoGrad guard;
    const Batch batch = batches.next();
    seen += batch.context;
    for (std::size_t i = 0; i + 1 < batch.documents.size(); ++i) {
      const Batch alone = document_alone(batch, i);
      const Index targets = count_targets(alone);
      nats +=
          static_cast<double>(targets) * static_cast<double>(batch_loss(before, alone).value()[0]);
      tokens += targets;
    }
  }
  const StepReport report = session.step();
  EXPECT_NEAR(report.result.loss, nats / static_cast<double>(tokens), 1e-5);
  EXPECT_EQ(report.tokens, seen);
}

TEST(DocumentsSession, PartsOfAStepComeToWhatOneBatchDoes) {
  std::vector<std::vector<Tensor>> values;
  for (const int parts : {1, 4}) {
    RunConfig config = tiny_run(Method::full);
    config.data.batch = 4 / parts;
    config.data.gradient_accumulation_steps = parts;
    Session session = session_of(config, "llama");
    session.step();
    values.push_back(values_of(session));
  }
  for (std::size_t i = 0; i < values[0].size(); ++i)
    EXPECT_LE(relative_difference(values[0][i], values[1][i]), 1e-3) << i;
}

TEST(DocumentsSession, ValidationIsTheMeanOverAllThatIsLearned) {
  RunConfig config = tiny_run(Method::lora);
  config.eval_windows = 1000;
  Session session = session_of(config);
  const NoGrad guard;
  const Batches valid = examples(1, 9, false);
  const Batch all = valid.windows(0, valid.num_windows());
  const Decoder decoder = tiny_decoder("gpt2");
  EXPECT_NEAR(*session.validate(), static_cast<double>(batch_loss(decoder, all).value()[0]), 1e-5);
}

TEST(EveryRun, Learns) {
  for_every_run([](const auto& make) {
    Session session = make();
    const auto before = parameters_of(session);
    while (!session.finished()) EXPECT_TRUE(std::isfinite(session.step().result.loss));
    EXPECT_TRUE(std::isfinite(*session.validate()));
    EXPECT_FALSE(changed(before, parameters_of(session)).empty());
  });
}

TEST(EveryRun, GoesOnFromACheckpointToTheSameBits) {
  for_every_run([](const auto& make) {
    const TempFolder folder;
    Session whole = make(), first = make(), second = make();
    for (int i = 0; i < 4; ++i) first.step();
    write_checkpoint(folder / "c.h5", first, {.start = 1.25, .best = 1.0, .best_step = 1});
    const Validations then = restore_checkpoint(folder / "c.h5", second);
    EXPECT_EQ(then.start, 1.25);
    EXPECT_EQ(then.best, 1.0);
    EXPECT_EQ(then.best_step, 1);
    EXPECT_EQ(second.steps(), 4);
    EXPECT_TRUE(changed(parameters_of(first), parameters_of(second)).empty());
    while (!whole.finished()) whole.step();
    while (!second.finished()) second.step();
    EXPECT_TRUE(changed(parameters_of(whole), parameters_of(second)).empty());
  });
}

TEST(EveryRun, HasTheSameBitsForAnyThreads) {
  for_every_run([](const auto& make) {
    expect_same_bits_for_any_threads("run", [&] {
      Session session = make();
      session.step();
      session.step();
      return values_of(session);
    });
  });
}

TEST(DocumentsSession, KeysAreFittedAsTheirDocumentsHaveThem) {
  // The same whether documents share windows or have their own.
  std::vector<std::vector<Tensor>> fitted;
  for (const Packing packing : {Packing::documents, Packing::none}) {
    const RunConfig config = keys_run();
    LoadedModel model = tiny_loaded("llama");
    Rng rng(1);
    attach_adapters(config, model, rng);
    const std::vector<Index> offsets = {0, 8, 16, 24, 32};
    const auto ids = random_ids(32, kTinyVocabulary, 3);
    const Batches batches(TokenView(TokenFile::from_tokens(ids, offsets, kTinyVocabulary)),
                          {.context = 16, .shuffle = false, .packing = packing});
    fit_focus(*model.decoder, *model.focus(), batches, 32, 1);
    auto& values = fitted.emplace_back();
    model.focus()->visit_parameters(
        [&](const std::string&, Variable& p) { values.push_back(p.value().clone()); });
  }
  for (std::size_t i = 0; i < fitted[0].size(); ++i)
    EXPECT_LE(relative_difference(fitted[0][i], fitted[1][i], 1e-3), 1e-4) << i;
}

TEST(DocumentsSession, WhatFollowsAWholeWindowIsRefusedByName) {
  RunConfig config = tiny_run(Method::full);
  config.attention = {.name = "routing_transformer",
                      .settings = parse_attention("routing_transformer").settings};
  const std::string error = error_of([&] { session_of(config); });
  EXPECT_TRUE(error.starts_with("routing") &&
              error.find("cannot separate the documents in one") != std::string::npos)
      << error;
}

}  // namespace
}  // namespace focus
