#pragma once

#include <memory>

#include "focus/method/grouping/grouping.h"

namespace focus {

struct ParitySettings {
  Index first = 0;
  template <class F>
  void visit(F&& f) {
    f("first", first, "group of a token whose input sums to less than 0", {0, 1});
  }
  void validate() const {}
};

/// A grouping as a program adds one of its own: two groups of tokens, by the sign of the sum of
/// their input. Each of its functions that may be left to Grouping is.
class ParityGrouping final : public Grouping {
 public:
  ParityGrouping(const FocusConfig& config, const FocusShape& shape)
      : Grouping(config.num_groups),
        first_(config.of<ParitySettings>().first),
        updates_(shape.num_layers) {}
  std::string_view kind() const override { return "parity"; }
  GroupIds group_ids(const MechanismInputs& in, Balance) override {
    GroupIds found{.groups = num_groups(), .heads = 1, .ids = {}};
    const Tensor& h = in.h.value();
    for (Index row = 0; row < h.rows(); ++row) {
      Real sum = 0;
      for (Index d = 0; d < h.cols(); ++d) sum += h[row * h.cols() + d];
      found.ids.push_back(static_cast<std::uint8_t>(sum < 0 ? first_ : 1 - first_));
    }
    return found;
  }
  Index assignment_cost(const MechanismInputs& in) const override { return in.h.dim(2); }
  std::int64_t& updates(Index layer) override { return updates_[layer]; }

 private:
  const Index first_;
  std::vector<std::int64_t> updates_;
};

/// A config of it; the first one adds it to the table.
inline FocusConfig parity_config() {
  [[maybe_unused]] static const bool once = [] {
    add_grouping({.name = "parity",
                  .help = "groups by a sign",
                  .defaults = ParitySettings{},
                  .tensors = [](const FocusConfig&,
                                const FocusShape&) { return std::vector<LayerTensor>{}; },
                  .make = [](const FocusConfig& config, const FocusShape& shape,
                             Rng&) -> std::unique_ptr<Grouping> {
                    return std::make_unique<ParityGrouping>(config, shape);
                  }});
    return true;
  }();
  FocusConfig config;
  config.grouping.name = "parity";
  config.num_groups = 2;
  config.local_window = 3;
  return config;
}

}  // namespace focus
