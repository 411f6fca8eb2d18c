#include "autograd/check.h"
#include "focus/mechanism.h"
#include "focus/rivals/performer.h"

namespace focus {
namespace {

class PerformerMechanism final : public Mechanism {
 public:
  using Settings = PerformerConfig;
  PerformerMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("performer", settings, shape), config_(settings) {
    check(shape.attn_logit_softcapping == 0,
          "performer: {} soft-caps its attention scores (attn_logit_softcapping {}), which random "
          "features cannot; choose another attention",
          shape.model_type, shape.attn_logit_softcapping);
    check(shape.widest_window() == 0,
          "performer: {} has layers with a sliding window of {}, which sums over all tokens before "
          "cannot keep; choose another attention",
          shape.model_type, shape.widest_window());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      layers[i].constants = orthogonal_features(config_.num_features, shape.head_dim, rng);
    }
  }

  std::string name() const override { return fmt::format("performer m={}", config_.num_features); }

 protected:
  /// Its pairs count as all: each has a weight, though none is computed.
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    if (pairs != nullptr) *pairs += all_pairs(in);
    return performer_attention(in.q, in.k, in.v, constants(in), in.options);
  }

 private:
  const Settings config_;
};

}  // namespace

AdapterKind performer_kind() {
  return mechanism_kind<PerformerMechanism>("performer", "attention performer: random features");
}

}  // namespace focus
