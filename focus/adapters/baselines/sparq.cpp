#include <cmath>

#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"
#include "focus/adapters/baselines/selected_keys.h"

// SparQ attention (Ribar et al. 2024, arXiv 2312.04985): token selection at inference, their
// algorithm 1 at every position. Of a query the r numbers of largest magnitude (i1) give
// approximate scores,
//   s^ = softmax(q_i1 . K_i1 / sqrt(head_dim |q_i1|_1 / |q|_1)),
// of which the k largest (i2, the last l always among them) are attended exactly:
//   out = a softmax(q . K_i2) V_i2 + (1 - a) mean(V),  a = sum of s^ over i2,
// with a = 1 where `reallocate` is false. options.scale is 1 / sqrt(head_dim); the mean is
// over the values that the query could see. Heads that share keys select i1 by the sum of their
// magnitudes and i2 by the sum of their s^.
// Other than in the paper every token of a text is treated so, where theirs computes a prompt
// densely and selects for what it generates, and the mean value serves grouped queries too, for
// which they leave it out (`reallocate` false does).
// With r = head_dim and k = seq_len it is attention(). Causal.
namespace focus {
namespace {

struct SparqSettings {
  static constexpr const char* kKind = "sparq";
  Index tokens = 32;    // k
  Index rank = 32;      // r
  Index last_keys = 0;  // l; a share of the k keys (0: none is forced), so not a window's distance
  bool reallocate = true;

  void visit(auto&& f) {
    f("tokens", tokens, "k, keys that a query attends", {1, 1 << 27});
    f("rank", rank, "r, query components used to select keys; more than head_dim: all",
      {1, 1 << 16});
    f("last_keys", last_keys, "l, how many of the k keys are always the last ones", {0, 1 << 27});
    f("reallocate", reallocate, "give the weight of the unselected keys to the mean value");
  }
  Index forced() const { return std::min(tokens, last_keys); }
};

class SparqReader final : public LargestBlocks {
 public:
  explicit SparqReader(const SparqSettings& config)
      : LargestBlocks({.sinks = 0, .local_window = config.forced() - 1},
                      config.tokens - config.forced(),
                      [this](const QueryRun& run, Scores& scores) { approximate(run, scores); }),
        config_(config) {}

  void read(Index token, Index query_head, Real* scores) override {
    LargestBlocks::read(token, query_head, scores);
    const KeyRange seen = seen_keys(token, run_->options.sliding_window);
    const Real* of_head =
        approximate_.data() + (query_head * run_->rows() + token - run_->begin) * run_->stride;
    share_ = 0;
    unread_ = 0;
    for (Index j = seen.begin; j < seen.end; ++j)
      if (scores[j] == kNotRead)
        ++unread_;
      else
        share_ += of_head[j];
  }
  /// The mean of the values that are seen is in the weights: (1 - a) / n for each.
  void reweigh(Index token, Index, Real* weights, Real sum) const override {
    if (!config_.reallocate || unread_ == 0) return;
    const KeyRange seen = seen_keys(token, run_->options.sliding_window);
    const auto each = static_cast<Real>((1 - share_) / static_cast<double>(seen.size())) * sum;
    for (Index j = seen.begin; j < seen.end; ++j)
      weights[j] = static_cast<Real>(share_) * weights[j] + each;
  }

 private:
  /// s^ of the run's queries and all keys up to its end, and their sums over the heads.
  void approximate(const QueryRun& run, Scores& sums) {
    const HeadView& head = run.head;
    const Index d = head.head_dim, rows = run.rows(), heads = head.query_heads;
    const auto total = static_cast<std::size_t>(heads * rows);
    std::vector<Real> reduced(total * d, 0), scales(total);
    std::vector<Real> magnitudes(d);
    for (Index i = run.begin; i < run.end; ++i) {
      for (Index c = 0; c < d; ++c) {
        magnitudes[c] = 0;
        for (Index h = 0; h < heads; ++h) magnitudes[c] += std::abs(head.query(i, h)[c]);
      }
      const auto kept = largest_of(magnitudes.data(), {0, d}, config_.rank, order_);
      for (Index h = 0; h < heads; ++h) {
        const Real* q = head.query(i, h);
        const Index at = h * rows + i - run.begin;
        Real all = 0, some = 0;
        for (Index c = 0; c < d; ++c) all += std::abs(q[c]);
        for (const Index c : kept) {
          some += std::abs(q[c]);
          reduced[at * d + c] = q[c];
        }
        const bool whole = std::ssize(kept) == d || some == 0;
        scales[at] = whole ? run.options.scale : run.options.scale * std::sqrt(all / some);
      }
    }
    approximate_.assign(total * run.stride, 0);
    serial::gemm_nt(heads * rows, run.end, d, reduced.data(), d, head.k, head.kv_stride,
                    approximate_.data(), run.stride);
    Real* sum = sums.resize(1, rows, run.stride).data();
    const simd::Kernels& kernels = simd::kernels();
    std::vector<Real> finished(run.stride);
    for (Index at = 0; at < heads * rows; ++at) {
      Real* s = approximate_.data() + at * run.stride;
      kernels.scale_row(s, scales[at], run.stride, finished.data(), false);
      if (run.options.softcap > 0)
        kernels.softcap_row(finished.data(), run.stride, run.options.softcap);
      weights_of_seen(finished.data(), seen_keys(run.begin + at % rows, run.options.sliding_window),
                      s, run.stride);
      kernels.scale_row(s, 1, run.stride, sum + at % rows * run.stride, true);
    }
  }

  const SparqSettings& config_;
  std::vector<Real> approximate_;  // s^ [query_heads, rows, stride]
  double share_ = 0;  // a, of the query that was read last, and its keys that are not read
  Index unread_ = 0;
};

struct Sparq final : MechanismWith<SparqSettings> {
  using MechanismWith::MechanismWith;

  std::string name() const override {
    return fmt::format("sparq k={} r={}{}", config_.tokens, config_.rank,
                       config_.reallocate ? " mean" : "");
  }
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return attend_selected(
        kind(), in, [this] { return std::make_unique<SparqReader>(config_); }, pairs);
  }
  /// Every pair by `rank` numbers of the query.
  double multiply_adds_to_select(const MechanismInputs& in,
                                 const PairCounts& pairs) const override {
    return static_cast<double>(pairs.all * in.q.dim(2) * std::min(config_.rank, in.q.dim(3)));
  }
};

}  // namespace

AdapterKind sparq_kind() {
  return mechanism_kind<Sparq>("token selection at inference (SparQ)", AdapterRole::selection);
}

}  // namespace focus
