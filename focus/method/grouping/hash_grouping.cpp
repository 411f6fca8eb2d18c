#include <algorithm>

#include "autograd/base/check.h"
#include "focus/method/grouping/grouping.h"

// Groups of tokens by a hash of their input, without training: the group of token i is the largest
// of [R h_i; -R h_i], R normal(0, 1) of a seed and of its layer (angular locality-sensitive
// hashing: Andoni et al. 2015, arXiv 1509.02897; Reformer, Kitaev et al. 2020, arXiv 2001.04451).
// What routing has to beat.
namespace focus {
namespace {

struct HashSettings {
  std::int64_t seed = 1;
  template <class F>
  void visit(F&& f) {
    f("seed", seed, "seed of the random directions", {0, 1e18});
  }
  void validate() const {}
};

class HashGrouping final : public Grouping {
 public:
  HashGrouping(const FocusConfig& config, const FocusShape& shape)
      : Grouping(config.num_groups),
        directions_((num_groups() + 1) / 2),
        updates_(static_cast<std::size_t>(shape.num_layers)) {
    Rng rng(static_cast<std::uint64_t>(config.of<HashSettings>().seed));
    for (Index i = 0; i < shape.num_layers; ++i) {
      Tensor rotation({directions_, shape.hidden_size});
      for (Real& x : rotation.span()) x = static_cast<Real>(rng.normal());
      rotations_.emplace_back(Variable(rotation));
    }
  }

  std::string_view kind() const override { return "hash"; }
  KeyClasses classes(const MechanismInputs& in, Balance) override {
    const NoGrad guard;
    const Variable h(in.h.value());
    const Tensor turned = linear(h, rotations_[static_cast<std::size_t>(in.layer)], {}).value();
    KeyClasses found{.groups = num_groups(), .heads = 1, .classes = {}};
    for (Index row = 0; row < turned.rows(); ++row)
      found.classes.push_back(hash_of(turned.data() + row * directions_));
    return found;
  }
  Index assignment_cost(const MechanismInputs& in) const override {
    return directions_ * in.h.dim(2);
  }
  std::int64_t& updates(Index layer) override { return updates_[static_cast<std::size_t>(layer)]; }

 private:
  /// Of an odd number of groups the last direction has one side only.
  std::uint8_t hash_of(const Real* turned) const {
    Index best = 0;
    for (Index g = 1; g < num_groups(); ++g)
      if (side(turned, g) > side(turned, best)) best = g;
    return static_cast<std::uint8_t>(best);
  }
  Real side(const Real* turned, Index g) const {
    return g < directions_ ? turned[g] : -turned[g - directions_];
  }

  Index directions_;
  std::vector<Weight> rotations_;  // [directions, hidden_size]
  std::vector<std::int64_t> updates_;
};

}  // namespace

GroupingKind hash_grouping() {
  return {
      .name = "hash",
      .help = "groups of tokens by a hash of a layer's input, without training",
      .defaults = HashSettings{},
      .tensors = [](const FocusConfig&, const FocusShape&) { return std::vector<LayerTensor>{}; },
      .make = [](const FocusConfig& config, const FocusShape& shape, Rng&)
          -> std::unique_ptr<Grouping> { return std::make_unique<HashGrouping>(config, shape); }};
}

}  // namespace focus
