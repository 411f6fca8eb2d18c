#include "focus/gated_attention.h"

#include <algorithm>
#include <limits>

#include "autograd/check.h"
#include "autograd/gemm.h"
#include "autograd/parallel.h"
#include "autograd/simd/kernels.h"
#include "autograd/tiled_attention.h"

namespace focus {
namespace {

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
      width_ = distant(tile.rows() - 1);
      if (width_ == 0) return;
      stride_ = simd::padded(simd::kernels(), width_);
      if (options_.gated) compute_gate();
      if (!options_.membership.empty()) compute_mask();
    }

    void apply(Index row, Real* scores) override {
      const Index n = distant(row);
      if (n == 0) return;
      if (options_.gated) {
        const Real* gate = gate_.data() + row * stride_;
        if (options_.gate == Gate::logit)
          for (Index c = 0; c < n; ++c) scores[c] *= gate[c];
        else
          for (Index c = 0; c < n; ++c) scores[c] += gate[c];
      }
      if (!options_.membership.empty()) {
        const Real* mask = mask_.data() + row * stride_;
        for (Index c = 0; c < n; ++c) scores[c] += mask[c];
      }
    }

    void backward(Index row, const Real* scores, Real* d_scores) override {
      const Index n = distant(row);
      if (n == 0 || !options_.gated) return;
      const Real* gate = gate_.data() + row * stride_;
      Real* d_affinity = rule_.grad_wanted_ ? d_affinity_.data() + row * stride_ : nullptr;
      if (options_.gate == Gate::logit) {
        // s' = s gate:  dA = ds' s lambda gate (1 - gate),  ds = ds' gate
        const Real lambda = steepness();
        if (d_affinity)
          for (Index c = 0; c < n; ++c)
            d_affinity[c] += d_scores[c] * scores[c] * lambda * gate[c] * (1 - gate[c]);
        for (Index c = 0; c < n; ++c) d_scores[c] *= gate[c];
      } else if (d_affinity) {
        // s' = s + log(A + floor):  dA = ds' / (A + floor),  ds = ds'
        for (Index c = 0; c < n; ++c) d_affinity[c] += d_scores[c];
      }
    }

    void finish(Real* rule_grad) override {
      if (!rule_.grad_wanted_ || width_ == 0) return;
      if (options_.gate == Gate::affinity)  // what all heads share of dA is divided by once
        for (Index r = 0; r < tile_.rows(); ++r)
          for (Index c = 0; c < distant(r); ++c)
            d_affinity_.data()[r * stride_ + c] /= affinity_[r * stride_ + c] + floor();
      // A = G_q G_kᵀ:  dG_q += dA G_k,  dG_k += dAᵀ G_q
      const Index queries = token(tile_.begin) * groups_, keys = token(tile_.first_key) * groups_;
      const Real* g = rule_.g_.data();
      serial::gemm(tile_.rows(), groups_, width_, d_affinity_.data(), stride_, g + keys, groups_,
                   rule_grad + queries, groups_, Into::add);
      serial::gemm_tn(width_, groups_, tile_.rows(), d_affinity_.data(), stride_, g + queries,
                      groups_, rule_grad + keys, groups_, Into::add);
    }

   private:
    Index token(Index position) const { return tile_.batch * rule_.g_.dim(1) + position; }
    /// Keys of row r that are further back than the local window.
    Index distant(Index r) const {
      return std::clamp<Index>(tile_.begin + r - options_.local_window - tile_.first_key, 0,
                               tile_.cols());
    }
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
      kernels.pack_transposed(g + token(tile_.first_key) * groups_, groups_, width_, groups_, 1,
                              packed);
      kernels.product(tile_.rows(), stride_, groups_, g + token(tile_.begin) * groups_, groups_, 1,
                      {packed, groups_, stride_}, 0, affinity, stride_, false);
      if (options_.gate == Gate::logit)
        kernels.sigmoid_row(affinity, gate, size, steepness());
      else
        kernels.log_row(affinity, gate, size, floor());
      if (rule_.grad_wanted_) std::fill_n(at_least(d_affinity_, size), size, Real(0));
    }

    void compute_mask() {
      const std::uint64_t* sets = options_.membership.data() + token(0);
      Real* mask = at_least(mask_, tile_.rows() * stride_);
      for (Index r = 0; r < tile_.rows(); ++r)
        for (Index c = 0; c < width_; ++c)
          mask[r * stride_ + c] = (sets[tile_.begin + r] & sets[tile_.first_key + c]) != 0
                                      ? Real(0)
                                      : -std::numeric_limits<Real>::infinity();
    }

    const FocusRule& rule_;
    const GateOptions& options_;
    const Index groups_;
    AttentionTile tile_;
    Index width_ = 0, stride_ = 0;
    Tensor packed_keys_, affinity_, gate_, mask_, d_affinity_;  // [rows, stride] but the first
  };

  const Tensor g_;
  const GateOptions options_;
  const bool grad_wanted_;
};

}  // namespace

Variable gated_attention(const Variable& q, const Variable& k, const Variable& v, const Variable& g,
                         const AttentionOptions& options, GateOptions gate, Tensor* lse) {
  check(g.shape().rank() == 3 && q.shape().rank() == 4 && g.dim(0) == q.dim(0) &&
            g.dim(1) == q.dim(1),
        "gated_attention: g {} does not fit q {}", g.shape(), q.shape());
  check(gate.membership.empty() || static_cast<Index>(gate.membership.size()) == g.value().rows(),
        "gated_attention: {} membership sets for {} tokens", gate.membership.size(),
        g.value().rows());
  const bool grad_wanted = g.requires_grad() && gate.gated;
  auto rule = std::make_shared<FocusRule>(g.value(), std::move(gate), grad_wanted);
  return attention_with_rule("gated_attention", q, k, v, grad_wanted ? g : Variable(g.value()),
                             options, rule, lse);
}

PairCounts& PairCounts::operator+=(const PairCounts& other) {
  all += other.all;
  distant += other.distant;
  attended += other.attended;
  return *this;
}

PairCounts count_pairs(std::span<const std::uint64_t> membership, Index seq_len, Index local_window,
                       Index sliding_window) {
  PairCounts counts;
  std::vector<std::int64_t> attended(static_cast<std::size_t>(seq_len), 0);
  for (Index i = 0; i < seq_len; ++i) {
    const Index first = sliding_window > 0 ? std::max<Index>(0, i - sliding_window + 1) : 0;
    counts.all += i + 1 - first;
    counts.distant += std::max<Index>(0, i - local_window - first);
  }
  if (membership.empty()) {
    counts.attended = counts.all;
    return counts;
  }
  parallel_chunks(seq_len, 64, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index first = sliding_window > 0 ? std::max<Index>(0, i - sliding_window + 1) : 0;
      const Index local = std::max(first, i - local_window);
      std::int64_t count = i + 1 - local;
      for (Index j = first; j < local; ++j)
        count += (membership[static_cast<std::size_t>(i)] &
                  membership[static_cast<std::size_t>(j)]) != 0;
      attended[static_cast<std::size_t>(i)] = count;
    }
  });
  for (const std::int64_t n : attended) counts.attended += n;
  return counts;
}

}  // namespace focus
