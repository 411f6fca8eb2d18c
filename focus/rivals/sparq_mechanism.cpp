#include <algorithm>

#include "focus/mechanism.h"
#include "focus/rivals/sparq.h"

namespace focus {
namespace {

class SparqMechanism final : public Mechanism {
 public:
  using Settings = SparqConfig;
  SparqMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("sparq", settings, shape), config_(settings) {}

  std::string name() const override {
    return fmt::format("sparq k={} r={}{}", config_.tokens, config_.rank,
                       config_.reallocate ? " mean" : "");
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return sparq_attention(in.q, in.k, in.v, in.options, config_, pairs);
  }
  /// Every pair by `rank` numbers of the query.
  double multiply_adds_to_choose(const MechanismInputs& in,
                                 const PairCounts& pairs) const override {
    return static_cast<double>(pairs.all * in.q.dim(2) * std::min(config_.rank, in.q.dim(3)));
  }

 private:
  const Settings config_;
};

}  // namespace

AdapterKind sparq_kind() {
  return mechanism_kind<SparqMechanism>("sparq", "token selection at inference (SparQ)", false);
}

}  // namespace focus
