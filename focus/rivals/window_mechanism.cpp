#include "focus/mechanism.h"
#include "focus/rivals/window_attention.h"

namespace focus {
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
                                         "attention window: a local window alone (Longformer)");
}

}  // namespace focus
