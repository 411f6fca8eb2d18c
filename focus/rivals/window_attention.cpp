#include "focus/rivals/window_attention.h"

#include "autograd/check.h"

namespace focus {
namespace {

Index narrower(Index window, Index sliding_window) {
  return sliding_window > 0 ? std::min(window, sliding_window) : window;
}

}  // namespace

void WindowConfig::validate() const {
  check(window >= 1, "window.window must be at least 1, not {}", window);
}

Variable window_attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionOptions& options, const WindowConfig& config) {
  AttentionOptions narrowed = options;
  narrowed.sliding_window = narrower(config.window, options.sliding_window);
  return attention(q, k, v, narrowed);
}

PairCounts count_window_pairs(Index seq_len, Index window, Index sliding_window) {
  PairCounts counts = count_pairs({}, seq_len, seq_len, sliding_window);
  counts.attended = count_pairs({}, seq_len, seq_len, narrower(window, sliding_window)).all;
  return counts;
}

}  // namespace focus
