#include "focus/mechanism.h"
#include "focus/rivals/magicpig.h"

namespace focus {
namespace {

class MagicPigMechanism final : public Mechanism {
 public:
  using Settings = MagicPigConfig;
  MagicPigMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("magicpig", settings, shape), config_(settings) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      layers[i].constants = hash_directions(config_, shape.head_dim, rng);
    }
  }

  std::string name() const override {
    return fmt::format("magicpig K={} L={}", config_.bits, config_.tables);
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return magicpig_attention(in.q, in.k, in.v, constants(in), in.options, config_, pairs);
  }
  /// The projections of every query and key; looking a hash up is none.
  double multiply_adds_to_choose(const MechanismInputs& in, const PairCounts&) const override {
    const Index vectors = in.q.value().rows() + in.k.value().rows();
    return static_cast<double>(vectors * constants(in).size());
  }

 private:
  const Settings config_;
};

}  // namespace

AdapterKind magicpig_kind() {
  return mechanism_kind<MagicPigMechanism>("magicpig", "token selection by hashing (MagicPIG)",
                                           false);
}

}  // namespace focus
