#pragma once

#include <map>

#include "focus/training/session.h"
#include "tests/support/compare.h"
#include "tests/support/tiny_focus.h"
#include "tests/support/tiny_model.h"

namespace focus {

inline constexpr std::int32_t kTinyVocabulary = 37;  // of tiny_config()

/// A tiny decoder of a family as a loaded model, its weights the same every time.
inline LoadedModel tiny_loaded(const std::string& family = "gpt2") {
  LoadedModel model;
  model.where = "tiny " + family;
  model.decoder = std::make_unique<Decoder>(tiny_decoder(family));
  return model;
}

inline Batches tiny_batches(Index context, Index batch, std::uint64_t seed, bool shuffle = true) {
  const auto ids = random_ids(40 * context, kTinyVocabulary, static_cast<int>(seed));
  return Batches(TokenView(TokenFile::from_tokens(ids, {}, kTinyVocabulary)),
                 {.batch = batch,
                  .context = context,
                  .shuffle = shuffle,
                  .seed = seed,
                  .vocab_size = kTinyVocabulary});
}

/// Steps of a tiny run: what differs from one test to the next is set on it.
inline RunConfig tiny_run(Method method = Method::retrofit) {
  RunConfig config;
  config.method = method;
  config.steps = 6;
  config.focus = tiny_focus();
  config.focus.tokens().sequence_steps = 2;
  config.data.context = 16;
  config.data.batch = 2;
  config.optim.lr = 0.01;
  config.optim.warmup_steps = 2;
  config.two_phase = {.phase1_steps = 3, .lr = 0.001, .warmup_steps = 1};
  config.eval_windows = 3;
  return config;
}

/// The same with groups of keys.
inline RunConfig keys_run(Method method = Method::retrofit) {
  RunConfig config = tiny_run(method);
  FocusConfig& f = config.focus;
  f.grouping.name = "keys";
  f.training = Training::summary;
  f.local_window = 2;
  f.summary.block = 2;
  f.summary.num_selected_groups = 1;
  f.keys().fit_tokens = 64;
  return config;
}

inline Session tiny_session(const RunConfig& config, const std::string& family = "gpt2") {
  LoadedModel model = tiny_loaded(family);
  Rng rng(static_cast<std::uint64_t>(config.seed));
  attach_adapters(config, model, rng);
  TrainingData data{.train = tiny_batches(config.data.context, config.data.batch, 5),
                    .valid = tiny_batches(config.data.context, 1, 9, false),
                    .fingerprint = "tiny"};
  return Session(config, std::move(model), std::move(data),
                 config.needs_teacher() ? std::move(tiny_loaded(family).decoder) : nullptr);
}

using NamedTensors = std::map<std::string, Tensor>;

/// Every parameter of the model and of what is on it, as it is now.
inline NamedTensors parameters_of(Session& session) {
  NamedTensors parameters;
  const auto add = [&](const std::string& name, Variable& p) {
    parameters[name] = p.value().clone();
  };
  for_each_parameter(*session.model().decoder, add, "model");
  for (const auto& adapter : session.model().adapters) adapter->visit_parameters(add);
  return parameters;
}

/// The names with `prefix` whose values differ.
inline std::vector<std::string> changed(const NamedTensors& before, const NamedTensors& after,
                                        const std::string& prefix = "") {
  std::vector<std::string> names;
  for (const auto& [name, value] : before)
    if (name.starts_with(prefix) && !same_bits(value, after.at(name))) names.push_back(name);
  return names;
}

}  // namespace focus
