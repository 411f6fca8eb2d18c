#include <cmath>
#include <numbers>

#include "autograd/gemm/gemm.h"
#include "focus/adapters/baselines/selected_keys.h"

// MagicPIG (Chen et al. 2024, arXiv 2410.16179): attention estimated from keys that
// locality-sensitive hashing samples, their algorithm 1 at every position: keys whose hashes equal
// the query's in two tables or more are attended, each weighed by 1 over the chance u of that
// (equations 9 to 11),
//   out = sum over S of e^(s_j) / u_j v_j / sum over S of e^(s_j) / u_j,
// where S also holds the sinks and the local window, with u = 1. Hashes are of the query and of
// the key less the mean of keys (softmax does not see it, angles spread out); the mean here is
// that of the keys before the query's block of 64 tokens, so that it is causal; the paper takes
// that of the whole prompt. They leave layers 0 and 16 of their models dense; here every layer
// samples. As in their experiments keys are not lengthened to one norm (equation 8). With 0 bits
// every key is sampled, and it is attention().
namespace focus {

/// The chance that a key at angle theta to the query is sampled: with p = 1 - theta / pi, that of
/// equal hashes in two or more of L tables, 1 - (1 - p^K)^L - L p^K (1 - p^K)^(L-1). `cosine` is of
/// theta.
double sampling_probability(double cosine, int bits, int tables) {
  const double angle = std::acos(std::clamp(cosine, -1.0, 1.0));
  const double same = std::pow(1 - angle / std::numbers::pi, bits);
  const double none = std::pow(1 - same, tables),
               one = tables * same * std::pow(1 - same, tables - 1);
  // Below, the two terms cancel to nothing in double: the first of the series is what is left.
  const double u = 1 - none - one;
  const double tiny = 0.5 * tables * (tables - 1) * same * same;
  return u > 1e-9 ? u : std::max(tiny, 1e-300);
}

namespace {

constexpr Index kBlock = 64;  // tokens between two means of the keys

struct MagicPigSettings {
  static constexpr const char* kKind = "magicpig";
  int bits = 8;             // K
  int tables = 75;          // L
  Index sinks = 4;          // first tokens, always attended
  Index local_window = 15;  // pairs with i - j <= local_window are always attended
  bool centred = true;
  std::int64_t seed = 1;

  void visit(auto&& f) {
    f("bits", bits, "K, bits per hash; more bits sample fewer keys", {0, 32});
    f("tables", tables, "L, hash tables; more tables sample more keys", {2, 4096});
    visit_local(f, local_window, sinks);
    f("centred", centred, "hash keys after subtracting the mean of earlier keys");
    f("seed", seed, "seed of the hash functions", {0, 1e18});
  }
};

double length(const Real* x, Index n) {
  double square = 0;
  for (Index d = 0; d < n; ++d) square += static_cast<double>(x[d]) * static_cast<double>(x[d]);
  return std::sqrt(square);
}

/// Reads the keys that are sampled in a block of queries.
class SampleReader final : public KeyReader {
 public:
  /// directions [tables * bits, head_dim], whose signs are the hashes; `projected` are k's products
  /// with them [batch, seq_len, kv_heads, tables * bits].
  SampleReader(const MagicPigSettings& config, const Tensor& directions, const Tensor& projected)
      : config_(config), directions_(directions), projected_(projected) {}

  void enter(const QueryRun& run) override {
    run_ = &run;
    const Index width = directions_.dim(0), d = run.head.head_dim;
    hash_keys();
    std::vector<Real> queries(run.rows() * width);
    own_.resize(run.head.query_heads * run.rows() * config_.tables);
    for (Index h = 0; h < run.head.query_heads; ++h) {
      project(run.rows(), run.head.query(run.begin, h), run.head.q_stride, queries.data());
      for (Index row = 0; row < run.rows(); ++row)
        hash(queries.data() + row * width, nullptr,
             own_.data() + (h * run.rows() + row) * config_.tables);
    }
    moved_.resize(run.end * d);
    key_lengths_.resize(run.end);
    for (Index t = 0; t < run.end; ++t) {
      Real* moved = moved_.data() + t * d;
      for (Index c = 0; c < d; ++c) moved[c] = run.head.k[t * run.head.kv_stride + c] - centre_[c];
      key_lengths_[t] = length(moved, d);
    }
  }

  void read(Index token, Index query_head, Real* scores) override {
    const Index d = run_->head.head_dim;
    const Real* q = run_->head.query(token, query_head);
    const double q_length = length(q, d);
    const std::uint32_t* own =
        own_.data() + (query_head * run_->rows() + token - run_->begin) * config_.tables;
    const Index first = seen_keys(token, run_->options.sliding_window).begin;
    for (Index j = std::max(first, config_.sinks); j < token - config_.local_window; ++j) {
      if (!sampled(own, codes_.data() + j * config_.tables)) {
        scores[j] = kNotRead;
        continue;
      }
      double dot = 0;
      for (Index c = 0; c < d; ++c)
        dot += static_cast<double>(q[c]) * static_cast<double>(moved_[j * d + c]);
      const double lengths = q_length * key_lengths_[j];
      scores[j] -= static_cast<Real>(std::log(
          sampling_probability(lengths > 0 ? dot / lengths : 0, config_.bits, config_.tables)));
    }
  }

 private:
  void project(Index rows, const Real* x, Index stride, Real* to) const {
    if (const Index width = directions_.dim(0); width > 0)
      serial::gemm_nt(rows, width, directions_.dim(1), x, stride, directions_.data(),
                      directions_.dim(1), to, width);
  }

  /// The keys up to the run's end, less the mean of those before it.
  void hash_keys() {
    const HeadView& head = run_->head;
    const Index d = head.head_dim, width = directions_.dim(0), kv_heads = projected_.dim(2);
    centre_.assign(d, 0);
    std::vector<Real> projected_centre(width, 0);
    if (config_.centred && run_->begin > 0) {
      for (Index c = 0; c < d; ++c) {
        double sum = 0;
        for (Index t = 0; t < run_->begin; ++t) sum += head.k[t * head.kv_stride + c];
        centre_[c] = static_cast<Real>(sum / static_cast<double>(run_->begin));
      }
      project(1, centre_.data(), d, projected_centre.data());
    }
    codes_.resize(run_->end * config_.tables);
    for (Index t = 0; t < run_->end; ++t) {
      const Index row = (run_->sequence * projected_.dim(1) + t) * kv_heads + run_->kv_head;
      hash(projected_.data() + row * width, projected_centre.data(),
           codes_.data() + t * config_.tables);
    }
  }

  /// One hash a table: the signs of `bits` projections.
  void hash(const Real* projections, const Real* centre, std::uint32_t* codes) const {
    for (Index t = 0; t < config_.tables; ++t) {
      std::uint32_t code = 0;
      for (Index b = t * config_.bits; b < (t + 1) * config_.bits; ++b)
        code = code << 1 | (projections[b] > (centre ? centre[b] : Real(0)) ? 1u : 0u);
      codes[t] = code;
    }
  }
  bool sampled(const std::uint32_t* query, const std::uint32_t* key) const {
    int equal = 0;
    for (Index t = 0; t < config_.tables; ++t) equal += query[t] == key[t] ? 1 : 0;
    return equal >= 2;
  }

  const MagicPigSettings& config_;
  const Tensor &directions_, &projected_;
  const QueryRun* run_ = nullptr;
  std::vector<std::uint32_t> own_, codes_;  // of queries [query_heads, rows, tables], and of keys
  std::vector<Real> centre_, moved_;        // [head_dim]; the keys less the centre
  std::vector<double> key_lengths_;         // of these
};

struct MagicPig final : MechanismWith<MagicPigSettings> {
  MagicPig(const Settings& settings, const ModelConfig& shape) : MechanismWith(settings, shape) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      layers[i].constants = Tensor({Index{config_.tables} * config_.bits, shape.head_dim});
      for (Real& x : layers[i].constants.span()) x = static_cast<Real>(rng.normal());
    }
  }

  std::string name() const override {
    return fmt::format("magicpig K={} L={}", config_.bits, config_.tables);
  }
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const Tensor& directions = constants(in);
    Tensor projected({in.k.dim(0), in.k.dim(1), in.k.dim(2), directions.dim(0)});
    if (projected.size() > 0) projected = linear(in.k.value(), Variable(directions), {}).value();
    return attend_selected(
        kind(), in, [&] { return std::make_unique<SampleReader>(config_, directions, projected); },
        pairs, kBlock);
  }
  /// The projections of every query and key; looking a hash up is free.
  double multiply_adds_to_select(const MechanismInputs& in, const PairCounts&) const override {
    const Index vectors = in.q.value().rows() + in.k.value().rows();
    return static_cast<double>(vectors * constants(in).size());
  }
};

}  // namespace

AdapterKind magicpig_kind() {
  return mechanism_kind<MagicPig>("token selection by hashing (MagicPIG)", AdapterRole::selection);
}

}  // namespace focus
