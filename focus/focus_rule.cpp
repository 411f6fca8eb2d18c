#include "focus/focus_rule.h"

#include <algorithm>
#include <array>

#include "autograd/gemm.h"

namespace focus {
namespace {

constexpr Index kQueries = AttentionPlan::kQueries;

class FocusRule : public ScoreRule {
 public:
  FocusRule(Tensor g, const GateOptions& options, bool grad_wanted)
      : g_(std::move(g)),
        gate_(options.gate),
        steepness_(static_cast<Real>(options.steepness)),
        floor_(static_cast<Real>(options.affinity_floor)),
        local_window_(options.local_window),
        grad_wanted_(grad_wanted) {}

  std::unique_ptr<Worker> worker() const override { return std::make_unique<FocusWorker>(*this); }
  bool multiplies() const override { return gate_ == Gate::logit; }
  Index grad_size() const override { return grad_wanted_ ? g_.size() : 0; }

 private:
  class FocusWorker : public Worker {
   public:
    explicit FocusWorker(const FocusRule& rule)
        : rule_(rule),
          groups_(rule.g_.cols()),
          columns_({groups_ * kQueries}),
          affinity_({AttentionPlan::kKeys * kQueries}),
          gate_(affinity_.shape()) {}

    const Real* gate(const AttentionTile& tile) override {
      tile_ = tile;
      tile.keys_behind(rule_.local_window_ + 1, distant_.data());
      if (distant_[static_cast<std::size_t>(tile.rows() - 1)] == 0) return nullptr;
      // A = G_k G_qᵀ, [keys, queries] as the scores are.
      const simd::Kernels& kernels = simd::kernels();
      const Real* g = rule_.g_.data();
      const Index size = tile.cols() * kQueries, columns = simd::padded(kernels, tile.rows());
      kernels.pack_transposed(g + tile.begin * groups_, groups_, tile.rows(), groups_, 1,
                              columns_.data());
      kernels.product(tile.cols(), columns, groups_, g + tile.keys.begin * groups_, groups_, 1,
                      {columns_.data(), groups_, columns}, 0, affinity_.data(), kQueries, false);
      if (rule_.multiplies())
        kernels.sigmoid_row(affinity_.data(), gate_.data(), size, rule_.steepness_);
      else
        kernels.log_row(affinity_.data(), gate_.data(), size, rule_.floor_);
      fill_local(gate_.data(), rule_.multiplies() ? Real(1) : Real(0));
      return gate_.data();
    }

    void backward(Real* d_gate, Real* rule_grad) override {
      // logit: dA = d gate lambda gate (1 - gate);  affinity: dA = d gate / (A + floor)
      const simd::Kernels& kernels = simd::kernels();
      const Index size = tile_.cols() * kQueries;
      if (rule_.multiplies())
        kernels.sigmoid_row_backward(gate_.data(), d_gate, size, rule_.steepness_);
      else
        kernels.log_row_backward(affinity_.data(), d_gate, size, rule_.floor_);
      fill_local(d_gate, 0);
      // A = G_k G_qᵀ:  dG_k += dA G_q,  dG_q += dAᵀ G_k
      const Index queries = tile_.begin * groups_, keys = tile_.keys.begin * groups_;
      const Real* g = rule_.g_.data();
      serial::gemm(tile_.cols(), groups_, tile_.rows(), d_gate, kQueries, g + queries, groups_,
                   rule_grad + keys, groups_, Into::add);
      serial::gemm_tn(tile_.rows(), groups_, tile_.cols(), d_gate, kQueries, g + keys, groups_,
                      rule_grad + queries, groups_, Into::add);
    }

   private:
    /// Writes `value` where a pair lies within the local window (or is not causal at all).
    void fill_local(Real* matrix, Real value) const {
      // Of each key the local queries come first, for counts rise from query to query.
      Index local = tile_.rows();
      for (Index key = tile_.cols() - 1; key >= 0; --key) {
        while (local > 0 && distant_[static_cast<std::size_t>(local - 1)] > key) --local;
        std::fill_n(matrix + key * kQueries, local, value);
      }
    }

    const FocusRule& rule_;
    const Index groups_;
    AttentionTile tile_;
    std::array<simd::Lane, kQueries> distant_{};  // of each query: its distant keys, the first ones
    Tensor columns_;                              // the queries' g, packed
    Tensor affinity_, gate_;                      // [keys, queries]
  };

  const Tensor g_;
  const Gate gate_;
  const Real steepness_, floor_;
  const Index local_window_;
  const bool grad_wanted_;
};

}  // namespace

std::unique_ptr<ScoreRule> focus_rule(Tensor g, const GateOptions& gate, bool grad_wanted) {
  return std::make_unique<FocusRule>(std::move(g), gate, grad_wanted);
}

}  // namespace focus
