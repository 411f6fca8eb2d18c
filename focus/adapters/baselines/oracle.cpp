#include "autograd/simd/kernels.h"
#include "focus/adapters/baselines/selected_keys.h"

// The oracle: of each query the distant keys of largest attention weight,
//   p_ij = softmax over j <= i of (scale q_i . k_j),
// by each head's own p, or by p summed over the query heads that share keys; beside them the local
// window and the sinks. No method: it has all scores before it selects, so that it saves nothing,
// and its pairs are those that it keeps. What selecting keys by their weight could reach at best,
// as far as more weight is better. The weights are over all keys that a query sees; of equals the
// first is kept. Causal.
namespace focus {
namespace {

/// Whose weights select.
enum class OracleHeads {
  each,   // each query head's own
  shared  // summed over the query heads that share keys
};
constexpr auto enum_names(OracleHeads) { return enum_list("each", "shared"); }

struct OracleSettings {
  static constexpr const char* kKind = "oracle";
  Index tokens = 32;
  OracleHeads heads = OracleHeads::each;
  Index local_window = 32;
  Index sinks = 4;

  void visit(auto&& f) {
    f("tokens", tokens, "number of distant keys that a query reads", {0, 1 << 27});
    f("heads", heads,
      "each: keys of largest weight of each query head; shared: of all heads that share keys");
    visit_local(f, local_window, sinks);
  }
};

struct Oracle final : MechanismWith<OracleSettings> {
  using MechanismWith::MechanismWith;

  std::string name() const override {
    return fmt::format("oracle k={} w={}{}", config_.tokens, config_.local_window,
                       config_.heads == OracleHeads::shared ? " shared" : "");
  }

  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const auto score = [this](const QueryRun& run, LargestBlocks::Scores& scores) {
      const Index heads = run.head.query_heads, rows = run.rows(), stride = run.stride;
      if (config_.heads == OracleHeads::each) {  // a head's weights are in the order of its scores
        std::copy_n(run.scores, heads * rows * stride, scores.resize(heads, rows, stride).data());
        return;
      }
      Real* sums = scores.resize(1, rows, stride).data();
      std::vector<Real> weights(stride);
      for (Index i = run.begin; i < run.end; ++i, sums += stride)
        for (Index h = 0; h < heads; ++h) {
          weights_of_seen(run.scores_of(i, h), seen_keys(i, run.options.sliding_window),
                          weights.data(), stride);
          simd::kernels().scale_row(weights.data(), 1, stride, sums, true);
        }
    };
    return attend_largest(kind(), in, {config_.sinks, config_.local_window}, config_.tokens, score,
                          pairs);
  }
  /// The scores of what it leaves out.
  double multiply_adds_to_select(const MechanismInputs& in,
                                 const PairCounts& pairs) const override {
    return static_cast<double>((pairs.all - pairs.attended) * in.q.dim(2) * in.q.dim(3));
  }
};

}  // namespace

AdapterKind oracle_kind() {
  return mechanism_kind<Oracle>(
      "attention oracle: the keys of largest weight, from all scores (reference, saves no compute)",
      AdapterRole::selection);
}

}  // namespace focus
