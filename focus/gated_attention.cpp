#include "focus/gated_attention.h"

#include <algorithm>
#include <limits>

#include "autograd/check.h"
#include "autograd/eigen.h"
#include "autograd/gemm.h"
#include "autograd/parallel.h"
#include "autograd/tiled_attention.h"

namespace focus {
namespace {

using Block = RowMatrix<Real>;

class FocusRule : public ScoreRule {
 public:
  FocusRule(Tensor g, GateOptions options, bool grad_wanted)
      : g_(std::move(g)), options_(std::move(options)), grad_wanted_(grad_wanted) {}

  std::unique_ptr<Tile> tile(const AttentionTile& tile) const override {
    return std::make_unique<FocusTile>(*this, tile);
  }
  Index grad_size() const override { return grad_wanted_ ? g_.size() : 0; }

 private:
  /// The distant pairs of a row are a prefix of its keys; all rows' prefixes lie in the first
  /// `width_` columns of the tile.
  class FocusTile : public Tile {
   public:
    FocusTile(const FocusRule& rule, const AttentionTile& tile)
        : options_(rule.options_),
          tile_(tile),
          groups_(rule.g_.cols()),
          width_(distant(tile.rows() - 1)),
          g_queries_(rule.g_.data() + (tile.batch * rule.g_.dim(1) + tile.begin) * groups_),
          g_keys_(rule.g_.data() + (tile.batch * rule.g_.dim(1) + tile.first_key) * groups_),
          g_offset_(g_queries_ - rule.g_.data()) {
      if (width_ == 0) return;
      if (options_.gated) {
        affinity_.resize(tile.rows(), width_);
        serial::gemm_nt(tile.rows(), width_, groups_, g_queries_, groups_, g_keys_, groups_,
                        affinity_.data(), width_);
        const auto a = affinity_.array();
        if (options_.gate == Gate::logit)
          gate_ = (1 + (-lambda() * a).exp()).inverse();
        else
          gate_ = (a + floor()).log();
        if (rule.grad_wanted_) d_affinity_ = Block::Zero(tile.rows(), width_);
      }
      if (!options_.membership.empty()) mask(rule.g_.dim(1));
    }

    void apply(Real* scores) override {
      for (Index r = 0; r < tile_.rows(); ++r) {
        const Index n = distant(r);
        if (n == 0) continue;
        auto s = array(scores + r * tile_.cols(), n);
        if (options_.gated && options_.gate == Gate::logit)
          s *= array(gate_.data() + r * width_, n);
        else if (options_.gated)
          s += array(gate_.data() + r * width_, n);
        if (mask_.size() > 0) s += array(mask_.data() + r * width_, n);
      }
    }

    void backward(const Real* scores, Real* d_scores) override {
      if (!options_.gated) return;
      for (Index r = 0; r < tile_.rows(); ++r) {
        const Index n = distant(r);
        if (n == 0) continue;
        auto d = array(d_scores + r * tile_.cols(), n);
        const auto gate = array(std::as_const(gate_).data() + r * width_, n);
        if (options_.gate == Gate::logit) {
          // s' = s gate:  dA = ds' s lambda gate (1 - gate),  ds = ds' gate
          if (d_affinity_.size() > 0)
            array(d_affinity_.data() + r * width_, n) +=
                d * array(scores + r * tile_.cols(), n) * lambda() * gate * (1 - gate);
          d *= gate;
        } else if (d_affinity_.size() > 0) {
          // s' = s + log(A + floor):  dA = ds' / (A + floor),  ds = ds'
          const auto a = array(std::as_const(affinity_).data() + r * width_, n);
          array(d_affinity_.data() + r * width_, n) += d / (a + floor());
        }
      }
    }

    void finish(Real* rule_grad) override {
      if (d_affinity_.size() == 0) return;
      // A = G_q G_kᵀ:  dG_q += dA G_k,  dG_k += dAᵀ G_q
      Real* d_queries = rule_grad + g_offset_;
      Real* d_keys = d_queries + (g_keys_ - g_queries_);
      serial::gemm(tile_.rows(), groups_, width_, d_affinity_.data(), width_, g_keys_, groups_,
                   d_queries, groups_, Into::add);
      serial::gemm_tn(width_, groups_, tile_.rows(), d_affinity_.data(), width_, g_queries_,
                      groups_, d_keys, groups_, Into::add);
    }

   private:
    /// Keys of row r that are further back than the local window.
    Index distant(Index r) const {
      return std::clamp<Index>(tile_.begin + r - options_.local_window - tile_.first_key, 0,
                               tile_.cols());
    }
    Real lambda() const { return static_cast<Real>(options_.steepness); }
    Real floor() const { return static_cast<Real>(options_.affinity_floor); }

    void mask(Index seq_len) {
      const std::uint64_t* sets = options_.membership.data() + tile_.batch * seq_len;
      mask_.resize(tile_.rows(), width_);
      for (Index r = 0; r < tile_.rows(); ++r)
        for (Index c = 0; c < width_; ++c)
          mask_(r, c) = (sets[tile_.begin + r] & sets[tile_.first_key + c]) != 0
                            ? Real(0)
                            : -std::numeric_limits<Real>::infinity();
    }

    const GateOptions& options_;
    const AttentionTile tile_;
    const Index groups_, width_;
    const Real* g_queries_;
    const Real* g_keys_;
    const Index g_offset_;
    Block affinity_, gate_, mask_, d_affinity_;  // [rows, width]
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
