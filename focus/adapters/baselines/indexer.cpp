#include <array>
#include <cmath>
#include <numeric>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"
#include "focus/adapters/baselines/selected_keys.h"
#include "layers/module.h"

// A small indexer that selects each query's keys, distilled on a frozen model: the lightning
// indexer of DeepSeek-V3.2's sparse attention (DeepSeek-AI 2025, "DeepSeek-V3.2-Exp", equation 1),
//   I_ij = sum over h of w_ih relu(q^I_ih . k^I_j),
// with q^I (16 numbers a head), k^I (16 numbers) and w linear in the layer's input h. A query
// attends, exactly, the `tokens` distant keys of largest I, the local window and the sinks. It is
// trained as in their warm-up stage, the model dense and frozen: its softmax shall be the attention
// weights summed over all heads, by KL (their equation 3); only its own matrices learn.
//
// Differences: 16 numbers a head, as in RTPurbo, and 4 heads, where theirs has 64 heads of 128; the
// model is not trained sparse after the warm-up; the window and the sinks are always read; where
// the model has rotary positions the first 8 numbers of q^I and k^I are rotated, where it has
// learned ones they are in h. What selecting costs, heads x 16 multiply-adds a pair of all pairs,
// once for all heads of a layer (one head's scores are head_dim a pair), is not in the pairs.
// Causal.
namespace focus {
namespace {

constexpr Index kIndexedQueries = 32;  // of a task
constexpr Index kDim = 16;             // of an index vector
constexpr Index kRotated = 8;          // of these, where the model has rotary positions

struct IndexerSettings {
  static constexpr const char* kKind = "indexer";
  Index tokens = 32;
  Index heads = 4;
  Index local_window = 32;
  Index sinks = 4;
  std::int64_t seed = 1;

  void visit(auto&& f) {
    f("tokens", tokens, "number of distant keys that a query reads", {0, 1 << 27});
    f("heads", heads, "heads of the indexer, each of width 16", {1, 64});
    visit_local(f, local_window, sinks);
    f("seed", seed, "seed of the initial weights of the indexer", {0, 1e18});
  }
};

/// The matrices of a layer's indexer [heads * 16, 16 or heads, hidden_size], or what they make of
/// its tokens: [batch, seq_len, heads, 16], [batch, seq_len, 1, 16] and [batch, seq_len, heads].
struct IndexVectors {
  Variable q, k, w;
  void visit(auto&& f) {
    f("q", q);
    f("k", k);
    f("w", w);
  }
};

/// I of the queries [begin, end) of a sequence and the keys before `end`.
class IndexScores {
 public:
  IndexScores(const IndexVectors& index, Index sequence, Index begin, Index end)
      : heads_(index.q.dim(2)),
        begin_(begin),
        rows_(end - begin),
        stride_(simd::padded(simd::kernels(), end)),
        q_(index.q.value().data() + (sequence * index.q.dim(1) + begin) * heads_ * kDim),
        w_(index.w.value().data() + (sequence * index.q.dim(1) + begin) * heads_),
        k_(index.k.value().data() + sequence * index.q.dim(1) * kDim),
        dots_(heads_ * rows_ * stride_, 0),
        scores_(rows_ * stride_, 0) {
    for (Index h = 0; h < heads_; ++h) {
      serial::gemm_nt(rows_, end, kDim, q_ + h * kDim, heads_ * kDim, k_, kDim, dots(h, 0),
                      stride_);
      for (Index r = 0; r < rows_; ++r) {
        const Real weight = w_[r * heads_ + h];
        Real* const dot = dots(h, r);
        Real* const to = scores_.data() + r * stride_;
        for (Index j = 0; j < stride_; ++j) {
          dot[j] = std::max(dot[j], Real(0));
          to[j] += weight * dot[j];
        }
      }
    }
  }
  Index stride() const { return stride_; }
  std::span<const Real> all() const { return scores_; }
  const Real* row(Index token) const { return scores_.data() + (token - begin_) * stride_; }

  /// From the gradients of I [rows, stride], 0 for keys not seen, to those of q and w, which are
  /// overwritten, and of k [end, 16], which is added to.
  void backward(const std::vector<Real>& d_scores, Real* dq, Real* dw, Real* dk) {
    const Index end = begin_ + rows_;
    for (Index h = 0; h < heads_; ++h) {
      for (Index r = 0; r < rows_; ++r) {
        const Real* const d = d_scores.data() + r * stride_;
        const Real weight = w_[r * heads_ + h];
        Real* const dot = dots(h, r);
        dw[r * heads_ + h] = simd::kernels().dot_row(d, dot, stride_);
        for (Index j = 0; j < stride_; ++j) dot[j] = dot[j] > 0 ? weight * d[j] : Real(0);
      }
      serial::gemm(rows_, kDim, end, dots(h, 0), stride_, k_, kDim, dq + h * kDim, heads_ * kDim);
      serial::gemm_tn(end, kDim, rows_, dots(h, 0), stride_, q_ + h * kDim, heads_ * kDim, dk, kDim,
                      Into::add);
    }
  }

 private:
  Real* dots(Index head, Index row) { return dots_.data() + (head * rows_ + row) * stride_; }

  Index heads_, begin_, rows_, stride_;
  const Real *q_, *w_, *k_;
  std::vector<Real> dots_;    // relu(q . k) [heads, rows, stride]
  std::vector<Real> scores_;  // [rows, stride]
};

/// The weights of the model's own attention, the mean of all heads: [end - begin, stride].
std::vector<Real> mean_weights(const Tensor& q, const Tensor& k, const AttentionOptions& options,
                               Index sequence, Index begin, Index end, Index stride) {
  const Index rows = end - begin, heads = q.dim(2), kv_heads = k.dim(2), shared = heads / kv_heads;
  std::vector<Real> mean(rows * stride, 0);
  std::vector<Real> scores(shared * rows * stride, 0);
  std::vector<Real> weights(stride);
  for (Index kv_head = 0; kv_head < kv_heads; ++kv_head) {
    scores_of_run(head_view(q, k, k, sequence, kv_head), options, begin, end, scores.data(),
                  stride);
    for (Index h = 0; h < shared; ++h)
      for (Index r = 0; r < rows; ++r) {
        weights_of_seen(scores.data() + (h * rows + r) * stride,
                        seen_keys(begin + r, options.sliding_window), weights.data(), stride);
        simd::kernels().scale_row(weights.data(), 1 / static_cast<Real>(heads), stride,
                                  mean.data() + r * stride, true);
      }
  }
  return mean;
}

/// The loss's gradients of q, k and w, times the number of tokens.
using LossGradients = std::array<Tensor, 3>;

/// The loss of the queries [begin, end); writes their rows of q and w, adds to dk [end, 16].
double loss_of_run(const IndexVectors& index, const Tensor& q, const Tensor& k,
                   const AttentionOptions& options, Index sequence, Index begin, Index end,
                   LossGradients& gradients, Real* dk) {
  IndexScores scores(index, sequence, begin, end);
  const Index stride = scores.stride();
  const std::vector<Real> wanted = mean_weights(q, k, options, sequence, begin, end, stride);
  std::vector<Real> d(wanted.size());  // softmax(I) - p
  double loss = 0;
  for (Index i = begin; i < end; ++i) {
    const Index first = seen_keys(i, options.sliding_window).begin;
    const Real* const p = wanted.data() + (i - begin) * stride;
    const Real* const s = scores.row(i);
    Real* const to = d.data() + (i - begin) * stride;
    weights_of_seen(s, {first, i + 1}, to, stride);
    // log softmax(I)_j = I_j - lse, by the largest: its weight is far from 0.
    const Index top = std::max_element(s + first, s + i + 1) - s;
    const double lse = static_cast<double>(s[top]) - std::log(static_cast<double>(to[top]));
    for (Index j = first; j <= i; ++j) {
      const auto weight = static_cast<double>(p[j]);
      if (weight > 0) loss += weight * (std::log(weight) - static_cast<double>(s[j]) + lse);
      to[j] -= p[j];
    }
  }
  const Index row = sequence * index.q.dim(1) + begin, heads = index.q.dim(2);
  scores.backward(d, gradients[0].data() + row * heads * kDim, gradients[2].data() + row * heads,
                  dk);
  return loss;
}

/// The mean over tokens of KL(p_i || softmax(I_i)) over the keys that token i sees, p_i being the
/// attention weights of q and k, summed over all heads and divided by their number.
/// Differentiable in the index vectors alone. -> [1]
Variable indexer_loss(const IndexVectors& index, const Tensor& q, const Tensor& k,
                      const AttentionOptions& options) {
  const Index batch = q.dim(0), seq_len = q.dim(1);
  const Index runs = (seq_len + kIndexedQueries - 1) / kIndexedQueries;
  LossGradients gradients{Tensor(index.q.shape()), Tensor::zeros(index.k.shape()),
                          Tensor(index.w.shape())};
  std::vector<double> losses(batch * runs);
  std::vector<std::vector<Real>> dk(losses.size());
  parallel_chunks(batch * runs, 1, [&](Index task, Index) {
    const Index begin = task % runs * kIndexedQueries;
    const Index end = std::min(seq_len, begin + kIndexedQueries);
    dk[task].resize(end * kDim, 0);
    losses[task] =
        loss_of_run(index, q, k, options, task / runs, begin, end, gradients, dk[task].data());
  });
  for (Index task = 0; task < batch * runs; ++task) {
    Real* const to = gradients[1].data() + task / runs * seq_len * kDim;
    for (std::size_t n = 0; n < dk[task].size(); ++n) to[n] += dk[task][n];
  }
  const double tokens = static_cast<double>(std::max<Index>(1, batch * seq_len));
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  const Tensor loss = Tensor::full({1}, static_cast<Real>(sum / tokens));
  return Variable::from_op("indexer_loss", loss, {index.q, index.k, index.w},
                           [gradients, tokens](const Tensor& dy, Grads grads) {
                             const Real factor = dy[0] / static_cast<Real>(tokens);
                             for (std::size_t n = 0; n < 3; ++n)
                               if (grads[n].wanted())
                                 grads[n].add(scale(Variable(gradients[n]), factor).value());
                           });
}

struct Indexer final : MechanismWith<IndexerSettings> {
  Indexer(const Settings& settings, const ModelConfig& shape)
      : MechanismWith(settings, shape), shape_(shape) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      const auto drawn = [&](Index rows) {
        Tensor t({rows, shape.hidden_size});
        const double spread = 1 / std::sqrt(static_cast<double>(shape.hidden_size));
        for (Real& x : t.span()) x = static_cast<Real>(spread * rng.normal());
        return Variable(t);
      };
      indexers_.push_back(
          {.q = drawn(config_.heads * kDim), .k = drawn(kDim), .w = drawn(config_.heads)});
    }
  }

  std::string name() const override {
    return fmt::format("indexer k={} w={}", config_.tokens, config_.local_window);
  }

  bool separates_documents() const override { return false; }  // its loss is the mean of a row

  void visit_parameters(const std::function<void(const std::string&, Variable&)>& f) override {
    for (std::size_t i = 0; i < indexers_.size(); ++i)
      for_each_parameter(indexers_[i], f, fmt::format("indexer.layers.{}", i));
  }
  void set_trainable(bool wanted) override {
    trains_ = wanted;
    for (IndexVectors& indexer : indexers_) set_requires_grad(indexer, wanted);
  }
  /// The mean of the layers' losses.
  Variable after_forward() override {
    Variable sum = std::exchange(loss_, {});
    return sum.defined() ? scale(sum, 1 / static_cast<Real>(layers.size())) : sum;
  }

  /// Where it is trained the model attends as it was, and the indexer looks on.
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const IndexVectors index = vectors(in);
    if (trains_ && grad_enabled()) {
      const Variable loss = indexer_loss(index, in.q.value(), in.k.value(), in.options);
      loss_ = loss_.defined() ? add(loss_, loss) : loss;
      if (pairs != nullptr) *pairs += all_pairs(in);
      return attention(in.q, in.k, in.v, in.options);
    }
    const auto score = [&](const QueryRun& run, LargestBlocks::Scores& scores) {
      if (run.kv_head > 0) return;  // those of the first are all heads'
      const IndexScores found(index, run.sequence, run.begin, run.end);
      std::ranges::copy(found.all(), scores.resize(1, run.rows(), found.stride()).begin());
    };
    return attend_largest(kind(), in, local_zone(), config_.tokens, score, pairs);
  }
  /// Its projections of every token, and every distant pair by its heads.
  double multiply_adds_to_select(const MechanismInputs& in, const PairCounts&) const override {
    if (trains_ && grad_enabled()) return 0;  // it looks on
    const IndexVectors& of = indexers_[in.layer];
    const Index tokens = in.h.dim(0) * in.h.dim(1);
    const std::int64_t distant =
        in.h.dim(0) * local_zone().distant_blocks(in.h.dim(1), in.options.sliding_window);
    return static_cast<double>(
        tokens * (of.q.value().size() + of.k.value().size() + of.w.value().size()) +
        distant * config_.heads * (kDim + 1));
  }

 private:
  IndexVectors vectors(const MechanismInputs& in) const {
    const IndexVectors& of = indexers_[in.layer];
    const Variable h(in.h.value());  // the model learns nothing by it
    const Index batch = h.dim(0), seq_len = h.dim(1);
    const Real to_one = 1 / std::sqrt(static_cast<Real>(config_.heads * kDim));
    IndexVectors index{.q = reshape(linear(h, of.q, {}), {batch, seq_len, config_.heads, kDim}),
                       .k = reshape(linear(h, of.k, {}), {batch, seq_len, 1, kDim}),
                       .w = scale(linear(h, of.w, {}), to_one)};
    if (!shape_.learned_positions) {
      RopeConfig angles = shape_.rope;
      // Its factors are of the pairs of the base's heads, which these are not.
      if (angles.scaling == RopeConfig::Scaling::longrope)
        angles.scaling = RopeConfig::Scaling::none;
      const RotaryTable table = rotary_table(angles, kRotated, seq_len);
      index.q = rope(index.q, table);
      index.k = rope(index.k, table);
    }
    return index;
  }

  LocalZone local_zone() const { return {config_.sinks, config_.local_window}; }

  const ModelConfig shape_;
  std::vector<IndexVectors> indexers_;  // one a layer
  bool trains_ = false;
  Variable loss_;  // of the layers so far
};

}  // namespace

AdapterKind indexer_kind() {
  return mechanism_kind<Indexer>(
      "attention indexer: a small indexer chooses keys, trained on a frozen base (DSA)",
      AdapterRole::trained_attention);
}

}  // namespace focus
