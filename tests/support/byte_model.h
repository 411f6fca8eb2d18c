#pragma once

#include "focus/models/model_files.h"
#include "tests/support/tiny_focus.h"
#include "tests/support/tiny_model.h"

namespace focus {

/// A tiny random model that reads bytes, NUL before every document, its weights the same every
/// time.
inline LoadedModel byte_model(const std::string& family = "llama", std::uint64_t seed = 1) {
  ModelConfig config = tiny_config(family);
  config.vocab_size = 256;
  config.bos_token_id = 0;
  LoadedModel model;
  model.where = "tiny " + family;
  model.decoder = std::make_unique<Decoder>(config);
  Rng rng(seed);
  initialise(*model.decoder, rng);
  model.tokenizer = load_tokenizer("bytes");
  return model;
}

/// The same with a Focus whose potentials have seen a batch.
inline LoadedModel byte_model_with_focus(const std::string& family = "llama") {
  LoadedModel model = byte_model(family);
  Rng rng(3);
  const FocusShape shape = FocusShape::of(model.decoder->config());
  model.attach(std::make_unique<FocusModel>(tiny_focus(), shape, rng));
  const NoGrad guard;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 60; ++i) ids.push_back((i * i + 31) % 256);
  model.decoder->hidden_states(ids, 1);
  carry_potentials(*model.focus());
  return model;
}

}  // namespace focus
