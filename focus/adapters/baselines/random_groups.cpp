#include "autograd/base/random.h"
#include "focus/adapters/mechanism.h"
#include "focus/method/attention/focus_attention.h"

// Random groups, the control of every method that groups tokens: a token's group is a hash of its
// position, the layer and a seed, and distant pairs are attended inside a group alone,
//   out_i = softmax over { j <= i : i - j <= w, j < s or group_i = group_j } of (scale q_i . k_j).
// It is Focus's hard attention at k = 1, without its gate, where routing has learnt nothing; the
// sinks are in every group. A layer has groups of its own, as in Focus, or the same tokens would
// never meet. There is nothing to select and nothing that its pairs leave out. Causal, and a model
// can be trained through it.
namespace focus {

/// The group of each position in a layer, the same for all heads and sequences.
std::vector<int> random_groups(int groups, std::int64_t seed, Index layer, Index seq_len) {
  const auto hash = [](std::uint64_t x) { return mixed(x + kMixStep); };
  const std::uint64_t of_layer =
      hash(hash(static_cast<std::uint64_t>(seed)) + static_cast<std::uint64_t>(layer));
  std::vector<int> of_positions;
  for (Index t = 0; t < seq_len; ++t)
    of_positions.push_back(static_cast<int>(hash(of_layer ^ static_cast<std::uint64_t>(t)) %
                                            static_cast<std::uint64_t>(groups)));
  return of_positions;
}

namespace {

struct RandomGroupsSettings {
  static constexpr const char* kKind = "random_groups";
  int groups = 4;
  Index local_window = 32;
  Index sinks = 4;
  std::int64_t seed = 1;

  void visit(auto&& f) {
    f("groups", groups, "number of random groups", {1, 64});
    visit_local(f, local_window, sinks);
    f("seed", seed, "seed of the groups", {0, 1e18});
  }
};

struct RandomGroups final : MechanismWith<RandomGroupsSettings> {
  using MechanismWith::MechanismWith;

  std::string name() const override {
    return fmt::format("random_groups {} w={}", config_.groups, config_.local_window);
  }

  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const Index batch = in.q.dim(0), seq_len = in.q.dim(1);
    std::vector<std::uint64_t> masks, membership;
    for (const int group : random_groups(config_.groups, config_.seed, in.layer, seq_len))
      masks.push_back(std::uint64_t{1} << group);
    for (Index s = 0; s < batch; ++s) {
      membership.insert(membership.end(), masks.begin(), masks.end());
      if (pairs != nullptr)
        *pairs += count_pairs(masks, seq_len, config_.local_window, in.options.sliding_window,
                              config_.sinks);
    }
    // The pairs are not gated: of g the number of groups counts alone.
    const Variable g(Tensor::zeros({batch, seq_len, config_.groups}));
    return sparse_attention(in.q, in.k, in.v, g, in.options,
                            {.local_window = config_.local_window,
                             .sinks = config_.sinks,
                             .gated = false,
                             .membership = std::move(membership)});
  }
};

}  // namespace

AdapterKind random_groups_kind() {
  return mechanism_kind<RandomGroups>(
      "attention random_groups: distant pairs in random groups, a control");
}

}  // namespace focus
