#pragma once

#include "focus/method/focus_model.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

namespace focus {

/// Focus's settings for a tiny decoder of the tests.
inline FocusConfig tiny_focus(Balance balance = Balance::carried) {
  FocusConfig config;
  config.num_groups = 4;
  config.tokens().routing_dim = 5;
  config.tokens().temperature = 0.3;
  config.local_window = 4;
  config.tokens().balance = balance;
  return config;
}

/// The same with groups of keys.
inline FocusConfig tiny_keys() {
  FocusConfig config = tiny_focus();
  config.grouping.name = "keys";
  config.training = Training::summary;
  return config;
}

/// Lets the batch of the last forward pass enter the carried potentials, as a training step does;
/// the mode stays as it is.
inline void carry_potentials(FocusModel& focus) {
  const AttentionSpec mode = focus.mode;
  focus.begin_step({});
  focus.mode = mode;
  focus.merge_statistics(focus.step_statistics());
}

/// A tiny decoder that attends through a FocusModel whose potentials have seen a batch.
struct TinyFocus {
  explicit TinyFocus(const ModelConfig& shape, const FocusConfig& config = tiny_focus())
      : decoder(tiny_decoder(shape)) {
    focus.emplace(config, 24, 3, rng);
    focus->attach(decoder);
    const NoGrad guard;
    decoder.hidden_states(random_ids(60, 37, 99), 1);
    carry_potentials(*focus);
  }
  explicit TinyFocus(const std::string& type, const FocusConfig& config = tiny_focus())
      : TinyFocus(tiny_config(type), config) {}

  Tensor logits(std::span<const std::int32_t> ids, Index batch = 1) const {
    const NoGrad guard;
    return decoder.logits(decoder.hidden_states(ids, batch)).value();
  }

  Rng rng{3};
  Decoder decoder;
  std::optional<FocusModel> focus;
};

}  // namespace focus
