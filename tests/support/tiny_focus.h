#pragma once

#include "focus/method/focus_model.h"

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

/// Lets the batch of the last forward pass enter the carried potentials, as a training step does;
/// the mode stays as it is.
inline void carry_potentials(FocusModel& focus) {
  const AttentionSpec mode = focus.mode;
  focus.begin_step({});
  focus.mode = mode;
  focus.merge_statistics(focus.step_statistics());
}

}  // namespace focus
