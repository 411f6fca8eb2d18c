#include "focus/adapters/baselines/oracle.h"

#include "autograd/base/check.h"
#include "autograd/simd/kernels.h"
#include "focus/adapters/baselines/selected_keys.h"
#include "focus/adapters/mechanism.h"

// The oracle: of each query the distant keys of largest attention weight,
//   p_ij = softmax over j <= i of (scale q_i . k_j),
// by each head's own p, or by p summed over the query heads that share keys; beside them the local
// window and the sinks. No method: it has all scores before it selects, so that it saves nothing,
// and its pairs are those that it keeps. What selecting keys by their weight could reach at best,
// as far as more weight is better. The weights are over all keys that a query sees; of equals the
// first is kept. Causal.
namespace focus {
namespace {

/// The weights of a query's keys, summed over heads.
class SharedWeights {
 public:
  explicit SharedWeights(const QueryRun& run)
      : run_(run),
        row_(static_cast<std::size_t>(run.stride)),
        sums_(static_cast<std::size_t>(run.stride)) {}

  const Real* of(Index token) {
    const KeyRange seen{first_visible(token, run_.sliding_window), token + 1};
    for (Index h = 0; h < run_.head.query_heads; ++h) {
      weights_of_seen(run_.scores_of(token, h), seen, row_.data(), run_.stride);
      simd::kernels().scale_row(row_.data(), 1, run_.stride, sums_.data(), h > 0);
    }
    return sums_.data();
  }

 private:
  const QueryRun& run_;
  std::vector<Real> row_, sums_;
};

class OracleMechanism final : public Mechanism {
 public:
  using Settings = OracleConfig;
  OracleMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("oracle", settings, shape), config_(settings) {}

  std::string name() const override {
    return fmt::format("oracle k={} w={}{}", config_.tokens, config_.local_window,
                       config_.heads == OracleHeads::shared ? " shared" : "");
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return oracle_attention(in.q, in.k, in.v, in.options, config_, pairs);
  }
  /// The scores of what it leaves out.
  double multiply_adds_to_select(const MechanismInputs& in,
                                 const PairCounts& pairs) const override {
    return static_cast<double>((pairs.all - pairs.attended) * in.q.dim(2) * in.q.dim(3));
  }

 private:
  const Settings config_;
};

}  // namespace

void OracleConfig::validate() const {
  check(tokens >= 0 && local_window >= 0 && sinks >= 0,
        "oracle: tokens, local_window and sinks must not be negative");
}

Variable oracle_attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionOptions& options, const OracleConfig& config,
                          PairCounts* pairs) {
  const LocalZone local{.sinks = config.sinks, .local_window = config.local_window};
  const auto each = [&](const QueryRun& run) -> KeySelection {
    return [&config, &run, largest = LargestOf()](Index token, KeyRange distant,
                                                  KeysRead& read) mutable {
      for (Index h = 0; h < run.head.query_heads; ++h)
        for (const Index j : largest(run.scores_of(token, h), distant, config.tokens))
          read.add(h, {j, j + 1});
    };
  };
  const auto shared = [&](const QueryRun& run) -> KeySelection {
    return [&config, weights = SharedWeights(run), largest = LargestOf()](
               Index token, KeyRange distant, KeysRead& read) mutable {
      for (const Index j : largest(weights.of(token), distant, config.tokens))
        read.add_for_all_heads({j, j + 1});
    };
  };
  const SelectionOfRun selection =
      config.heads == OracleHeads::each ? SelectionOfRun(each) : SelectionOfRun(shared);
  return attend_selected("oracle", q, k, v, options, local, selection, pairs);
}

AdapterKind oracle_kind() {
  return mechanism_kind<OracleMechanism>(
      "oracle",
      "attention oracle: the keys of largest weight, from all scores (reference, saves no compute)",
      AdapterRole::selection);
}

}  // namespace focus
