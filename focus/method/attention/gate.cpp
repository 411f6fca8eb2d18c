#include "focus/method/attention/gate.h"

#include <algorithm>
#include <array>

#include "autograd/gemm/gemm.h"
#include "focus/method/documents.h"
#include "focus/method/grouping/group_statistics.h"

namespace focus {

GateFactor::GateFactor(const GateOptions& options)
    : use_(options.gate == Gate::logit ? simd::GateUse::score : simd::GateUse::weight),
      start_(options.gate == Gate::logit ? Real(0) : static_cast<Real>(options.affinity_floor)),
      steepness_(static_cast<Real>(options.steepness)) {}

void GateFactor::finish(Real* affinities, Index n) const {
  if (use_ == simd::GateUse::score)
    simd::kernels().sigmoid_row(affinities, affinities, n, steepness_);
}

void GateFactor::backward(const Real* factors, Real* gradient, Index n) const {
  // logit: dA = lambda f (1 - f) df;  affinity: dA = df
  if (use_ == simd::GateUse::score)
    simd::kernels().sigmoid_row_backward(factors, gradient, n, steepness_);
}

namespace {

constexpr Index kQueries = AttentionPlan::kQueries;

/// 1 for the tokens of all sequences that are sinks; empty without sinks.
std::vector<char> sink_tokens(const Shape& g, Index sinks, std::span<const Index> documents) {
  std::vector<char> marks;
  if (sinks == 0) return marks;
  marks.resize(g[0] * g[1]);
  fill_sinks<char>(sequence_starts(g[0], g[1], documents), sinks, 1, marks);
  return marks;
}

class FocusRule : public ScoreRule {
 public:
  FocusRule(Tensor g, const GateOptions& options, bool grad_wanted,
            std::span<const Index> documents)
      : g_(std::move(g)),
        sinks_(sink_tokens(g_.shape(), options.sinks, documents)),
        factor_(options),
        local_window_(options.local_window),
        gated_(options.gated),
        masks_(options.membership),
        grad_wanted_(gated_ && grad_wanted) {}

  std::unique_ptr<Worker> worker() const override { return std::make_unique<FocusWorker>(*this); }
  simd::GateUse gate_use() const override {
    return gated_ ? factor_.use() : simd::GateUse::weight;  // a mask alone: 0 or 1 times the weight
  }
  Index grad_size() const override { return grad_wanted_ ? g_.size() : 0; }

 private:
  class FocusWorker : public Worker {
   public:
    explicit FocusWorker(const FocusRule& rule)
        : rule_(rule),
          groups_(rule.g_.cols()),
          padded_groups_(simd::padded(kernels_, groups_)),
          columns_({groups_ * kQueries}),
          panels_({kQueries * padded_groups_}),
          keys_({AttentionPlan::kKeys * groups_}),
          d_queries_({groups_ * kQueries}),
          d_keys_({AttentionPlan::kKeys * padded_groups_}),
          gate_({AttentionPlan::kKeys * kQueries}) {}

    const Real* gate(const AttentionTile& tile) override {
      if (tile.begin != tile_.begin || tile.end != tile_.end) packed_ = {};
      tile_ = tile;
      tile.keys_behind(rule_.local_window_ + 1, distant_.data());
      if (distant_[tile.rows() - 1] == 0) return nullptr;
      if (rule_.gated_)
        set_gate();
      else
        std::fill_n(gate_.data(), tile.cols() * kQueries, Real(1));
      if (!rule_.masks_.empty()) mask();
      fill_exempt(gate_.data(), 1);
      return gate_.data();
    }

    void backward(Real* d_gate, Real* rule_grad) override {
      const Index rows = tile_.rows(), columns = simd::padded(kernels_, rows);
      rule_.factor_.backward(gate_.data(), d_gate, tile_.cols() * kQueries);
      fill_exempt(d_gate, 0);
      // A = G_k G_qᵀ:  dG_k += dA G_q,  dG_q += dAᵀ G_k
      // The first as dG_qᵀ = G_kᵀ dA: wide rows, where G_k has a few numbers in each.
      const simd::Panels d_affinity = {d_gate, tile_.cols(), columns, 0, kQueries};
      kernels_.product(groups_, columns, tile_.cols(), key_assignments(), 1, groups_, d_affinity, 0,
                       d_queries_.data(), kQueries, {});
      Real* queries = rule_grad + tile_.begin * groups_;
      for (Index row = 0; row < rows; ++row)
        for (Index group = 0; group < groups_; ++group)
          queries[row * groups_ + group] += d_queries_[group * kQueries + row];
      kernels_.product(tile_.cols(), padded_groups_, rows, d_gate, kQueries, 1,
                       {query_panels(), rows, padded_groups_}, 0, d_keys_.data(), padded_groups_,
                       {});
      for (Index key = 0; key < tile_.cols(); ++key) {
        const Real* from = d_keys_.data() + key * padded_groups_;
        Real* to = rule_grad + tile_.plan->own_row(tile_.keys.begin + key) * groups_;
        for (Index group = 0; group < groups_; ++group) to[group] += from[group];
      }
    }

   private:
    void set_gate() {
      // A = G_k G_qᵀ, [keys, queries] as the scores are.
      const Index size = tile_.cols() * kQueries, columns = simd::padded(kernels_, tile_.rows());
      const bool onto = rule_.factor_.start() != 0;
      if (onto) std::fill_n(gate_.data(), size, rule_.factor_.start());
      kernels_.product(tile_.cols(), columns, groups_, key_assignments(), groups_, 1,
                       {query_columns(), groups_, columns}, 0, gate_.data(), kQueries,
                       {.any = onto});
      rule_.factor_.finish(gate_.data(), size);
    }
    /// G_q of the tile, packed by one of the kernels once for all its key tiles.
    const Real* packed_queries(auto* pack, bool& is_packed, Tensor& to) {
      if (!std::exchange(is_packed, true))
        pack(rule_.g_.data() + tile_.begin * groups_, groups_, tile_.rows(), groups_, 1, to.data());
      return to.data();
    }
    const Real* query_columns() {
      return packed_queries(kernels_.pack_transposed, packed_.columns, columns_);
    }
    const Real* query_panels() { return packed_queries(kernels_.pack, packed_.panels, panels_); }
    /// Weight 0 where a pair shares no group.
    void mask() {
      const AttentionPlan& plan = *tile_.plan;
      std::array<std::uint64_t, kQueries> queries{};
      for (Index i = 0; i < tile_.rows(); ++i)
        queries[i] = rule_.masks_[plan.token(tile_.begin + i)];
      for (Index key = 0; key < tile_.cols(); ++key) {
        const std::uint64_t of_key = rule_.masks_[plan.token(tile_.keys.begin + key)];
        Real* row = gate_.data() + key * kQueries;
        for (std::size_t i = 0; i < kQueries; ++i)
          row[i] = (queries[i] & of_key) != 0 ? row[i] : Real(0);
      }
    }
    /// G_k of the tile: where it lies, or gathered.
    const Real* key_assignments() {
      const Real* g = rule_.g_.data();
      if (!tile_.copied_keys()) return g + tile_.keys.begin * groups_;
      for (Index key = 0; key < tile_.cols(); ++key)
        std::copy_n(g + tile_.plan->own_row(tile_.keys.begin + key) * groups_, groups_,
                    keys_.data() + key * groups_);
      return keys_.data();
    }
    /// Writes `value` where a pair lies within the local window (or is not causal at all), and
    /// where its key is a sink.
    void fill_exempt(Real* matrix, Real value) const {
      for (Index key = 0; !rule_.sinks_.empty() && key < tile_.cols(); ++key)
        if (rule_.sinks_[tile_.plan->token(tile_.keys.begin + key)] != 0)
          std::fill_n(matrix + key * kQueries, tile_.rows(), value);
      // The local queries of a key come first, for counts rise from query to query.
      Index local = tile_.rows();
      for (Index key = tile_.cols() - 1; key >= 0; --key) {
        while (local > 0 && distant_[local - 1] > key) --local;
        std::fill_n(matrix + key * kQueries, local, value);
      }
    }

    const simd::Kernels& kernels_ = simd::kernels();
    const FocusRule& rule_;
    const Index groups_, padded_groups_;
    AttentionTile tile_;
    struct {
      bool columns = false, panels = false;
    } packed_;                                    // of the tile's queries
    std::array<simd::Lane, kQueries> distant_{};  // of each query: its distant keys, the first ones
    Tensor columns_;                              // the queries' g, packed as columns
    Tensor panels_;                               // and as rows
    Tensor keys_;                                 // g of copied keys
    Tensor d_queries_;                            // gradient of the queries' g [groups, queries]
    Tensor d_keys_;                               // and of the keys' [keys, padded groups]
    Tensor gate_;                                 // [keys, queries]
  };

  const Tensor g_;
  const std::vector<char> sinks_;  // of all tokens; empty: none is one
  const GateFactor factor_;
  const Index local_window_;
  const bool gated_;
  const std::vector<std::uint64_t> masks_;  // of the tokens; empty: every pair is attended
  const bool grad_wanted_;
};

}  // namespace

std::unique_ptr<ScoreRule> focus_rule(Tensor g, const GateOptions& gate, bool grad_wanted,
                                      std::span<const Index> documents) {
  return std::make_unique<FocusRule>(std::move(g), gate, grad_wanted, documents);
}

}  // namespace focus
