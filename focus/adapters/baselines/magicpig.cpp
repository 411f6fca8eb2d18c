#include "focus/adapters/baselines/magicpig.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "focus/adapters/baselines/selected_keys.h"
#include "focus/adapters/mechanism.h"

namespace focus {
namespace {

constexpr Index kBlock = 64;  // tokens between two means of the keys

double length(const Real* x, Index n) {
  double square = 0;
  for (Index d = 0; d < n; ++d) square += static_cast<double>(x[d]) * static_cast<double>(x[d]);
  return std::sqrt(square);
}

/// One hash a table: the signs of `bits` projections.
void hash(const Real* projections, const Real* centre, int bits, int tables, std::uint32_t* codes) {
  for (Index t = 0; t < tables; ++t) {
    std::uint32_t code = 0;
    for (Index b = t * bits; b < (t + 1) * bits; ++b)
      code = code << 1 | (projections[b] > (centre ? centre[b] : Real(0)) ? 1u : 0u);
    codes[t] = code;
  }
}

class HeadSampler {
 public:
  HeadSampler(const HeadView& head, const Tensor& directions, const AttentionOptions& options,
              const MagicPigConfig& config, Index seq_len)
      : head_(head),
        directions_(directions),
        options_(options),
        config_(config),
        seq_len_(seq_len),
        width_(directions.dim(0)),
        codes_(static_cast<std::size_t>(seq_len * config.tables)),
        centre_(static_cast<std::size_t>(head.head_dim), 0),
        key_lengths_(static_cast<std::size_t>(seq_len)) {
    projected_keys_ = projected(head.k, head.kv_stride);
  }

  /// Writes the heads' rows of out and returns the pairs attended.
  std::int64_t run(Real* out) {
    std::vector<std::vector<Real>> queries;
    for (Index h = 0; h < head_.query_heads; ++h)
      queries.push_back(projected(head_.query(0, h), head_.q_stride));
    std::vector<std::uint32_t> own(static_cast<std::size_t>(config_.tables));
    std::int64_t attended = 0;
    for (Index begin = 0; begin < seq_len_; begin += kBlock) {
      const Index end = std::min(seq_len_, begin + kBlock);
      hash_keys(begin, end);
      for (Index i = begin; i < end; ++i)
        for (Index h = 0; h < head_.query_heads; ++h) {
          hash(queries[static_cast<std::size_t>(h)].data() + i * width_, nullptr, config_.bits,
               config_.tables, own.data());
          attended += attend(i, h, own.data(), out + i * head_.q_stride + h * head_.head_dim);
        }
    }
    return attended;
  }

 private:
  std::vector<Real> projected(const Real* x, Index stride) const {
    std::vector<Real> result(static_cast<std::size_t>(seq_len_ * width_));
    if (width_ > 0)
      serial::gemm_nt(seq_len_, width_, head_.head_dim, x, stride, directions_.data(),
                      head_.head_dim, result.data(), width_);
    return result;
  }

  /// The keys up to `end`, less the mean of those before `begin`.
  void hash_keys(Index begin, Index end) {
    const Index d = head_.head_dim;
    std::vector<Real> projected_centre(static_cast<std::size_t>(width_), 0);
    if (config_.centred && begin > 0) {
      for (Index c = 0; c < d; ++c) {
        double sum = 0;
        for (Index t = 0; t < begin; ++t) sum += static_cast<double>(head_.key(t)[c]);
        centre_[static_cast<std::size_t>(c)] = static_cast<Real>(sum / static_cast<double>(begin));
      }
      if (width_ > 0)
        serial::gemm_nt(1, width_, d, centre_.data(), d, directions_.data(), d,
                        projected_centre.data(), width_);
    }
    std::vector<Real> moved(static_cast<std::size_t>(d));
    for (Index t = 0; t < end; ++t) {
      hash(projected_keys_.data() + t * width_, projected_centre.data(), config_.bits,
           config_.tables, codes_.data() + t * config_.tables);
      for (std::size_t c = 0; c < moved.size(); ++c) moved[c] = head_.key(t)[c] - centre_[c];
      key_lengths_[static_cast<std::size_t>(t)] = length(moved.data(), d);
    }
  }

  bool sampled(const std::uint32_t* own, Index j) const {
    const std::uint32_t* codes = codes_.data() + j * config_.tables;
    int equal = 0;
    for (Index t = 0; t < config_.tables; ++t) equal += own[t] == codes[t] ? 1 : 0;
    return equal >= 2;
  }

  Index attend(Index i, Index h, const std::uint32_t* own, Real* out) const {
    const Index d = head_.head_dim;
    const Real* q = head_.query(i, h);
    const double q_length = length(q, d);
    std::vector<Index> selected;
    std::vector<Real> weights;
    for (Index j = first_visible(i, options_.sliding_window); j <= i; ++j) {
      const bool certain = j < config_.sinks || i - j <= config_.local_window;
      if (!certain && !sampled(own, j)) continue;
      Real s = score(q, head_.key(j), d, options_);
      if (!certain) {
        double dot = 0;
        for (Index c = 0; c < d; ++c)
          dot += static_cast<double>(q[c]) *
                 static_cast<double>(head_.key(j)[c] - centre_[static_cast<std::size_t>(c)]);
        const double lengths = q_length * key_lengths_[static_cast<std::size_t>(j)];
        const double u =
            sampling_probability(lengths > 0 ? dot / lengths : 0, config_.bits, config_.tables);
        s -= static_cast<Real>(std::log(u));
      }
      selected.push_back(j);
      weights.push_back(s);
    }
    softmax_in_place(weights);
    std::fill_n(out, d, Real(0));
    for (std::size_t n = 0; n < selected.size(); ++n)
      for (Index c = 0; c < d; ++c) out[c] += weights[n] * head_.value(selected[n])[c];
    return static_cast<Index>(selected.size());
  }

  const HeadView& head_;
  const Tensor& directions_;
  const AttentionOptions& options_;
  const MagicPigConfig& config_;
  Index seq_len_, width_;  // width: bits of all tables
  std::vector<Real> projected_keys_;
  std::vector<std::uint32_t> codes_;  // [seq_len, tables], of the keys
  std::vector<Real> centre_;          // [head_dim]
  std::vector<double> key_lengths_;   // of the keys less the centre
};

}  // namespace

void MagicPigConfig::validate() const {
  check(bits >= 0 && bits <= 32, "magicpig.bits must be from 0 to 32, not {}", bits);
  check(tables >= 2, "magicpig.tables must be at least 2, not {}", tables);
  check(sinks >= 0 && local_window >= 0, "magicpig: sinks and local_window must not be negative");
}

Tensor hash_directions(const MagicPigConfig& config, Index head_dim, Rng& rng) {
  Tensor directions({Index{config.tables} * config.bits, head_dim});
  for (Real& x : directions.span()) x = static_cast<Real>(rng.normal());
  return directions;
}

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

Variable magicpig_attention(const Variable& q, const Variable& k, const Variable& v,
                            const Tensor& directions, const AttentionOptions& options,
                            const MagicPigConfig& config, PairCounts* pairs) {
  check_attention_inputs({q.value(), k.value(), v.value(), options});
  refuse_gradients("magicpig", q, k, v);
  check(directions.dim(0) == Index{config.tables} * config.bits && directions.dim(1) == q.dim(3),
        "magicpig: directions {} do not fit {} tables of {} bits and q {}", directions.shape(),
        config.tables, config.bits, q.shape());
  const Index batch = q.dim(0), seq_len = q.dim(1), kv_heads = k.dim(2);
  Tensor out(q.shape());
  std::vector<std::int64_t> attended(static_cast<std::size_t>(batch * kv_heads));
  parallel_chunks(batch * kv_heads, 1, [&, out = out.data()](Index first, Index last) {
    for (Index n = first; n < last; ++n) {
      const HeadView head = head_view(q.value(), k.value(), v.value(), n / kv_heads, n % kv_heads);
      attended[static_cast<std::size_t>(n)] =
          HeadSampler(head, directions, options, config, seq_len)
              .run(out + (head.q - q.value().data()));
    }
  });
  if (pairs != nullptr)
    *pairs = pairs_of_heads(batch, seq_len, q.dim(2), options.sliding_window,
                            std::reduce(attended.begin(), attended.end()));
  return Variable(out);
}

namespace {

class MagicPigMechanism final : public Mechanism {
 public:
  using Settings = MagicPigConfig;
  MagicPigMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("magicpig", settings, shape), config_(settings) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      layers[i].constants = hash_directions(config_, shape.head_dim, rng);
    }
  }

  std::string name() const override {
    return fmt::format("magicpig K={} L={}", config_.bits, config_.tables);
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return magicpig_attention(in.q, in.k, in.v, constants(in), in.options, config_, pairs);
  }
  /// The projections of every query and key; looking a hash up is free.
  double multiply_adds_to_select(const MechanismInputs& in, const PairCounts&) const override {
    const Index vectors = in.q.value().rows() + in.k.value().rows();
    return static_cast<double>(vectors * constants(in).size());
  }

 private:
  const Settings config_;
};

}  // namespace

AdapterKind magicpig_kind() {
  return mechanism_kind<MagicPigMechanism>("magicpig", "token selection by hashing (MagicPIG)",
                                           AdapterRole::selection);
}

}  // namespace focus
