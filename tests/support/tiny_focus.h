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

/// One attention of each kind that a cache can hold.
inline std::vector<AttentionSpec> cached_modes() {
  return {{.kind = AttentionKind::dense},
          {.kind = AttentionKind::hard, .top_k = 2, .gate = HardGate::keep},
          {.kind = AttentionKind::summary, .summary = {.local_window = 4, .block = 1, .sinks = 1}}};
}

/// A tiny llama whose texts of more than 30 tokens are rotated by other angles.
inline ModelConfig tiny_longrope() {
  ModelConfig config = tiny_config("llama");
  config.rope = {.scaling = RopeConfig::Scaling::longrope,
                 .short_factor = {1, 1.5, 2},
                 .long_factor = {2, 5, 9},
                 .attention_factor = 1.2,
                 .original_max_position_embeddings = 30};
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
    focus.emplace(config, FocusShape::of(shape), rng);
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
