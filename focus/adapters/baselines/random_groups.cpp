#include "focus/adapters/baselines/random_groups.h"

#include "autograd/base/check.h"
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
namespace {

class RandomGroupsMechanism final : public Mechanism {
 public:
  using Settings = RandomGroupsConfig;
  RandomGroupsMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("random_groups", settings, shape), config_(settings) {}

  std::string name() const override {
    return fmt::format("random_groups {} w={}", config_.groups, config_.local_window);
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return random_groups_attention(in.q, in.k, in.v, in.options, config_, in.layer, pairs);
  }

 private:
  const Settings config_;
};

}  // namespace

void RandomGroupsConfig::validate() const {
  check(groups >= 1 && groups <= 64, "random_groups.groups must be from 1 to 64, not {}", groups);
  check(local_window >= 0 && sinks >= 0,
        "random_groups: local_window and sinks must not be negative");
}

std::vector<int> random_groups(const RandomGroupsConfig& config, Index layer, Index seq_len) {
  const auto hash = [](std::uint64_t x) { return mixed(x + kMixStep); };
  const std::uint64_t of_layer =
      hash(hash(static_cast<std::uint64_t>(config.seed)) + static_cast<std::uint64_t>(layer));
  std::vector<int> groups;
  for (Index t = 0; t < seq_len; ++t)
    groups.push_back(static_cast<int>(hash(of_layer ^ static_cast<std::uint64_t>(t)) %
                                      static_cast<std::uint64_t>(config.groups)));
  return groups;
}

Variable random_groups_attention(const Variable& q, const Variable& k, const Variable& v,
                                 const AttentionOptions& options, const RandomGroupsConfig& config,
                                 Index layer, PairCounts* pairs) {
  const Index batch = q.dim(0), seq_len = q.dim(1);
  std::vector<std::uint64_t> masks;
  for (const int group : random_groups(config, layer, seq_len))
    masks.push_back(std::uint64_t{1} << group);
  if (pairs != nullptr) {
    *pairs = {};
    const PairCounts one =
        count_pairs(masks, seq_len, config.local_window, options.sliding_window, config.sinks);
    for (Index s = 0; s < batch; ++s) *pairs += one;
  }
  std::vector<std::uint64_t> membership;
  for (Index s = 0; s < batch; ++s) membership.insert(membership.end(), masks.begin(), masks.end());
  // The pairs are not gated: of g the number of groups counts alone.
  const Variable g(Tensor::zeros({batch, seq_len, config.groups}));
  return sparse_attention(q, k, v, g, options,
                          {.local_window = config.local_window,
                           .sinks = config.sinks,
                           .gated = false,
                           .membership = std::move(membership)});
}

AdapterKind random_groups_kind() {
  return mechanism_kind<RandomGroupsMechanism>(
      "random_groups", "attention random_groups: distant pairs in random groups, a control");
}

}  // namespace focus
