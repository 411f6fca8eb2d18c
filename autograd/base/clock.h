#pragma once

#include <chrono>

namespace focus {

/// Seconds of the steady clock, which no change of the time of day moves: for differences alone.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace focus
