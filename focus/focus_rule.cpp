#include "focus/focus_rule.h"

#include <algorithm>
#include <array>
#include <limits>

#include "autograd/gemm.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

class FocusRule : public ScoreRule {
 public:
  FocusRule(Tensor g, GateOptions options, bool grad_wanted)
      : g_(std::move(g)), options_(std::move(options)), grad_wanted_(grad_wanted) {}

  std::unique_ptr<Worker> worker() const override { return std::make_unique<FocusWorker>(*this); }
  Index grad_size() const override { return grad_wanted_ ? g_.size() : 0; }

 private:
  /// The distant pairs of a row are a prefix of its keys; all rows' prefixes lie in the first
  /// `width_` columns of the tile.
  class FocusWorker : public Worker {
   public:
    explicit FocusWorker(const FocusRule& rule)
        : rule_(rule), options_(rule.options_), groups_(rule.g_.cols()) {}

    void begin(const AttentionTile& tile) override {
      tile_ = tile;
      for (Index r = 0; r < tile.rows(); ++r)
        distant_[static_cast<std::size_t>(r)] = tile.plan->keys_before(
            tile.keys, tile.plan->position(tile.begin + r) - options_.local_window);
      width_ = distant(tile.rows() - 1);
      if (width_ == 0) return;
      stride_ = simd::padded(simd::kernels(), width_);
      if (options_.gated) compute_gate();
      if (!options_.membership.empty()) compute_mask();
    }

    void apply(Index row, Index first, Real* scores) override {
      const Index n = distant(row);
      if (n == 0) return;
      if (options_.gated) {
        const Real* gate = gate_.data() + row * stride_;
        if (options_.gate == Gate::logit)
          for (Index c = first; c < n; ++c) scores[c] *= gate[c];
        else
          for (Index c = first; c < n; ++c) scores[c] += gate[c];
      }
      if (!options_.membership.empty()) {
        const Real* mask = mask_.data() + row * stride_;
        for (Index c = first; c < n; ++c) scores[c] += mask[c];
      }
    }

    void backward(Index row, Index first, const Real* scores, Real* d_scores) override {
      const Index n = distant(row);
      if (n == 0 || !options_.gated) return;
      const Real* gate = gate_.data() + row * stride_;
      Real* d_affinity = rule_.grad_wanted_ ? d_affinity_.data() + row * stride_ : nullptr;
      if (options_.gate == Gate::logit) {
        // s' = s gate:  dA = ds' s lambda gate (1 - gate),  ds = ds' gate
        const Real lambda = steepness();
        if (d_affinity)
          for (Index c = first; c < n; ++c)
            d_affinity[c] += d_scores[c] * scores[c] * lambda * gate[c] * (1 - gate[c]);
        for (Index c = first; c < n; ++c) d_scores[c] *= gate[c];
      } else if (d_affinity) {
        // s' = s + log(A + floor):  dA = ds' / (A + floor),  ds = ds'
        for (Index c = first; c < n; ++c) d_affinity[c] += d_scores[c];
      }
    }

    void finish(Real* rule_grad) override {
      if (!rule_.grad_wanted_ || width_ == 0) return;
      if (options_.gate == Gate::affinity)  // what all heads share of dA is divided by once
        for (Index r = 0; r < tile_.rows(); ++r)
          for (Index c = 0; c < distant(r); ++c)
            d_affinity_.data()[r * stride_ + c] /= affinity_[r * stride_ + c] + floor();
      // A = G_q G_kᵀ:  dG_q += dA G_k,  dG_k += dAᵀ G_q
      const Index queries = tile_.begin * groups_, keys = tile_.keys.begin * groups_;
      const Real* g = rule_.g_.data();
      serial::gemm(tile_.rows(), groups_, width_, d_affinity_.data(), stride_, g + keys, groups_,
                   rule_grad + queries, groups_, Into::add);
      serial::gemm_tn(width_, groups_, tile_.rows(), d_affinity_.data(), stride_, g + queries,
                      groups_, rule_grad + keys, groups_, Into::add);
    }

   private:
    /// Keys of the tile that are further back from row r than the local window.
    Index distant(Index r) const { return distant_[static_cast<std::size_t>(r)]; }
    Real steepness() const { return static_cast<Real>(options_.steepness); }
    Real floor() const { return static_cast<Real>(options_.affinity_floor); }

    /// Grows a buffer to `size`; its contents are lost.
    static Real* at_least(Tensor& buffer, Index size) {
      if (!buffer.defined() || buffer.size() < size) buffer = Tensor({size});
      return buffer.data();
    }

    void compute_gate() {
      const simd::Kernels& kernels = simd::kernels();
      const Index size = tile_.rows() * stride_;
      const Real* g = rule_.g_.data();
      Real* packed = at_least(packed_keys_, groups_ * stride_);
      Real* affinity = at_least(affinity_, size);
      Real* gate = at_least(gate_, size);
      kernels.pack_transposed(g + tile_.keys.begin * groups_, groups_, width_, groups_, 1, packed);
      kernels.product(tile_.rows(), stride_, groups_, g + tile_.begin * groups_, groups_, 1,
                      {packed, groups_, stride_}, 0, affinity, stride_, false);
      if (options_.gate == Gate::logit)
        kernels.sigmoid_row(affinity, gate, size, steepness());
      else
        kernels.log_row(affinity, gate, size, floor());
      if (rule_.grad_wanted_) std::fill_n(at_least(d_affinity_, size), size, Real(0));
    }

    void compute_mask() {
      const std::uint64_t* sets = options_.membership.data();
      Real* mask = at_least(mask_, tile_.rows() * stride_);
      for (Index r = 0; r < tile_.rows(); ++r)
        for (Index c = 0; c < width_; ++c)
          mask[r * stride_ + c] =
              (sets[tile_.begin + r] & sets[tile_.keys.begin + c]) != 0 ? Real(0) : kMasked;
    }

    const FocusRule& rule_;
    const GateOptions& options_;
    const Index groups_;
    AttentionTile tile_;
    std::array<Index, AttentionPlan::kQueries> distant_{};
    Index width_ = 0, stride_ = 0;
    Tensor packed_keys_, affinity_, gate_, mask_, d_affinity_;  // [rows, stride] but the first
  };

  const Tensor g_;
  const GateOptions options_;
  const bool grad_wanted_;
};

/// Masks every pair of which the two sets meet.
class DisjointRule : public ScoreRule {
 public:
  explicit DisjointRule(std::vector<std::uint64_t> sets) : sets_(std::move(sets)) {}
  std::unique_ptr<Worker> worker() const override {
    return std::make_unique<DisjointWorker>(sets_);
  }

 private:
  class DisjointWorker : public Worker {
   public:
    explicit DisjointWorker(const std::vector<std::uint64_t>& sets) : sets_(sets) {}
    void begin(const AttentionTile& tile) override {
      // Once for all heads; every head then adds the mask.
      cols_ = tile.cols();
      mask_.resize(static_cast<std::size_t>(tile.rows() * cols_));
      for (Index r = 0; r < tile.rows(); ++r) {
        const std::uint64_t own = sets_[static_cast<std::size_t>(tile.begin + r)];
        const std::uint64_t* others = sets_.data() + tile.keys.begin;
        for (Index c = 0; c < cols_; ++c)
          mask_[static_cast<std::size_t>(r * cols_ + c)] = (own & others[c]) != 0 ? kMasked : 0;
      }
    }
    void apply(Index row, Index first, Real* scores) override {
      const Real* mask = mask_.data() + row * cols_;
      for (Index c = first; c < cols_; ++c) scores[c] += mask[c];
    }
    void backward(Index, Index, const Real*, Real*) override {}
    void finish(Real*) override {}

   private:
    const std::vector<std::uint64_t>& sets_;
    std::vector<Real> mask_;
    Index cols_ = 0;
  };

  const std::vector<std::uint64_t> sets_;
};

}  // namespace

std::unique_ptr<ScoreRule> focus_rule(Tensor g, GateOptions gate, bool grad_wanted) {
  return std::make_unique<FocusRule>(std::move(g), std::move(gate), grad_wanted);
}

std::unique_ptr<ScoreRule> disjoint_rule(std::vector<std::uint64_t> sets) {
  return std::make_unique<DisjointRule>(std::move(sets));
}

}  // namespace focus
