#include "focus/adapters/baselines/window_attention.h"

#include "autograd/base/check.h"
#include "focus/adapters/mechanism.h"

namespace focus {
Index narrower_window(Index local_window, Index sliding_window) {
  return sliding_window > 0 ? std::min(local_window + 1, sliding_window) : local_window + 1;
}

void WindowConfig::validate() const {
  check(local_window >= 0, "window.local_window must not be negative, not {}", local_window);
}

Variable window_attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionOptions& options, const WindowConfig& config) {
  AttentionOptions narrowed = options;
  narrowed.sliding_window = narrower_window(config.local_window, options.sliding_window);
  return attention(q, k, v, narrowed);
}

PairCounts count_window_pairs(Index seq_len, Index local_window, Index sliding_window) {
  PairCounts counts = count_pairs({}, seq_len, seq_len, sliding_window);
  counts.attended =
      count_pairs({}, seq_len, seq_len, narrower_window(local_window, sliding_window)).all;
  return counts;
}

namespace {

class WindowMechanism final : public Mechanism {
 public:
  using Settings = WindowConfig;
  WindowMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("window", settings, shape), config_(settings) {}

  std::string name() const override { return fmt::format("window w={}", config_.local_window); }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    for (Index s = 0; pairs != nullptr && s < in.q.dim(0); ++s)
      *pairs += count_window_pairs(in.q.dim(1), config_.local_window, in.options.sliding_window);
    return window_attention(in.q, in.k, in.v, in.options, config_);
  }

 private:
  const Settings config_;
};

}  // namespace

AdapterKind window_kind() {
  return mechanism_kind<WindowMechanism>("window",
                                         "attention window: a local window only (Longformer)");
}

}  // namespace focus
