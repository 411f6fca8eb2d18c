#pragma once

#include "focus/config.h"

namespace focus {

/// Focus's settings for a tiny decoder of the tests.
inline FocusConfig tiny_focus(Balance balance = Balance::carried) {
  FocusConfig config;
  config.num_groups = 4;
  config.routing_dim = 5;
  config.temperature = 0.3;
  config.local_window = 4;
  config.balance = balance;
  return config;
}

}  // namespace focus
