#include <cmath>

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"
#include "focus/adapters/baselines/selected_keys.h"

// Performer (Choromanski et al. 2021, arXiv 2009.14794): causal attention by positive random
// features, FAVOR+ (their equations 5 and 7, algorithm 1):
//   out_i = sum_{j<=i} (phi(q_i) . phi(k_j)) v_j / sum_{j<=i} phi(q_i) . phi(k_j),
//   phi(x)_r = exp(w_r . x - |x|^2 / 2), x being q or k times sqrt(options.scale); 1/sqrt(m)
// cancels. An estimate of softmax attention whose error falls with the number of features. The rows
// w_r are orthogonal within blocks of head_dim rows, each as long as a normal vector is (section
// 2.4). Prefix sums in chunks: time O(seq_len m head_dim), nothing [seq_len, seq_len].
// Exponents are taken relative to the largest of their token for queries and keys, and to the
// largest of the keys so far in the sums: all that cancels, and nothing of a later token enters a
// bit of an earlier one (the authors' code takes the largest of all keys). Queries' features have
// 1e-6 added, relative to their largest, so that no denominator is 0.
// Features have no answer to a soft-cap or a sliding window. A model can be trained through it.
namespace focus {
namespace {

constexpr Index kChunk = 64;  // tokens between two steps of the prefix sums
constexpr Real kFloor = Real(1e-6);

struct PerformerSettings {
  static constexpr const char* kKind = "performer";
  int num_features = 256;  // m
  std::int64_t seed = 1;

  void visit(auto&& f) {
    f("num_features", num_features, "m, random features per head", {1, 1 << 16});
    f("seed", seed, "seed of the features, which are never trained or redrawn", {0, 1e18});
  }
};

using Buffer = std::vector<Real>;
Buffer buffer(Index size) { return Buffer(size); }

void multiply_row(Real* row, Index n, Real factor) {
  for (Index i = 0; i < n; ++i) row[i] *= factor;
}

struct PerformerInputs {
  Tensor q, k, v, features;
  Real scale;
};

/// One key head of one sequence, and the query heads that share it.
class PerformerHead {
 public:
  /// n: key heads of the sequences before, and those before it in its own.
  PerformerHead(const PerformerInputs& in, Index n)
      : in_(in),
        head_(head_view(in.q, in.k, in.v, n / in.k.dim(2), n % in.k.dim(2))),
        tokens_(in.q.dim(1)),
        m_(in.features.dim(0)),
        width_(head_.head_dim + 1),
        key_at_(head_.k - in.k.data()),
        largest_(buffer(tokens_)),
        running_(largest_),
        values_(buffer(tokens_ * width_)),
        pairs_(buffer(kChunk * kChunk)),
        decay_(pairs_),
        scaled_(buffer(kChunk * std::max(m_, width_))),
        sums_(buffer(m_ * width_)) {
    const Index dim = head_.head_dim;
    phi_ = features_of(head_.k, head_.kv_stride, largest_);
    for (Index t = 0; t < tokens_; ++t) {
      const Real* key = head_.k + t * head_.kv_stride;
      Real square = 0;
      for (Index d = 0; d < dim; ++d) square += key[d] * key[d];
      const auto at = static_cast<std::size_t>(t);
      largest_[at] = std::sqrt(in.scale) * largest_[at] - in.scale * square / 2;
      running_[at] = std::max(largest_[at], largest_before(t));
      std::copy_n(head_.v + t * head_.kv_stride, dim, values_.data() + t * width_);
      values_[t * width_ + dim] = 1;
    }
  }

  /// Writes the query heads' rows of out and denominators [batch, heads, seq_len].
  void forward(Real* out, Real* denominators) {
    Buffer sums = buffer(tokens_ * width_);
    each_query_head(
        [&](Index from, Real* of_head) {
          attend(sums.data());
          for (Index t = 0; t < tokens_; ++t) {
            const Real* row = sums.data() + t * width_;
            of_head[t] = row[head_.head_dim];
            for (Index d = 0; d < head_.head_dim; ++d)
              out[from + t * head_.q_stride + d] = row[d] / row[head_.head_dim];
          }
        },
        denominators);
  }

  /// Writes the query heads' rows of dq and the key head's of dk and dv.
  void backward(const Real* out, Real* denominators, const Real* d_out, Real* dq, Real* dk,
                Real* dv) {
    Buffer d_keys = buffer(tokens_ * m_), d_values = buffer(tokens_ * width_);
    Buffer d_queries = buffer(tokens_ * m_), d_sums = buffer(tokens_ * width_);
    each_query_head(
        [&](Index from, const Real* of_head) {
          // out = N / D:  dN = d_out / D,  dD = -(d_out . out) / D, side by side.
          for (Index t = 0; t < tokens_; ++t) {
            const Index row = from + t * head_.q_stride;
            Real* d = d_sums.data() + t * width_;
            Real dot = 0;
            for (Index c = 0; c < head_.head_dim; ++c) {
              d[c] = d_out[row + c] / of_head[t];
              dot += d[c] * out[row + c];
            }
            d[head_.head_dim] = -dot;
          }
          to_features(d_sums.data(), d_queries.data(), d_keys.data(), d_values.data());
          to_earlier_keys(d_sums.data(), d_keys.data(), d_values.data());
          through_query_exponentials(d_queries.data());
          through_projection(d_queries.data(), dq + from, head_.q_stride);
        },
        denominators);
    for (Index t = 0; t < tokens_; ++t)
      std::copy_n(d_values.data() + t * width_, head_.head_dim, dv + key_at_ + t * head_.kv_stride);
    through_key_features(d_keys.data(), dk + key_at_);
  }

 private:
  /// e^(sqrt(scale) (x . w_r - the largest of these)) for each token [seq_len, m]; the largest go
  /// to `tops`.
  Buffer features_of(const Real* x, Index stride, Buffer& tops) const {
    Buffer phi = buffer(tokens_ * m_);
    const Real root = std::sqrt(in_.scale);
    serial::gemm_nt(tokens_, m_, head_.head_dim, x, stride, in_.features.data(), head_.head_dim,
                    phi.data(), m_);
    for (Index t = 0; t < tokens_; ++t) {
      Real* row = phi.data() + t * m_;
      const Real top = tops[t] = *std::max_element(row, row + m_);
      for (Index r = 0; r < m_; ++r) row[r] = root * (row[r] - top);
      simd::kernels().elementwise.exp_shifted(row, 0, 1, row, m_);
    }
    return phi;
  }

  /// Calls f(where the head starts in q, its denominators) for each query head, its features in
  /// queries_: e^(...) plus kFloor. |q|^2 / 2 is the same for all of a row and cancels.
  template <class F>
  void each_query_head(F&& f, Real* denominators) {
    Buffer tops = buffer(tokens_);
    for (Index h = 0; h < head_.query_heads; ++h) {
      const Index from = head_.query(0, h) - in_.q.data();
      queries_ = features_of(head_.query(0, h), head_.q_stride, tops);
      for (Real& x : queries_) x += kFloor;
      const Index sequence = from / (tokens_ * head_.q_stride);
      const Index head = from % head_.q_stride / head_.head_dim;
      f(from, denominators + (sequence * in_.q.dim(2) + head) * tokens_);
    }
  }
  template <class F>
  void each_chunk(F&& f) {
    std::ranges::fill(sums_, Real(0));
    for (Index begin = 0; begin < tokens_; begin += kChunk)
      f(begin, std::min(kChunk, tokens_ - begin));
  }

  /// out [seq_len, head_dim + 1]: numerators and denominators of queries_.
  void attend(Real* out) {
    each_chunk([&](Index begin, Index rows) {
      weigh_pairs(begin, rows);
      serial::gemm(rows, width_, rows, pairs_.data(), kChunk, value(begin), width_,
                   out + begin * width_, width_);
      const Buffer from_before = times_past(begin, rows);
      serial::gemm(rows, width_, m_, from_before.data(), m_, sums_.data(), width_,
                   out + begin * width_, width_, Into::add);
      enter(begin, rows);
    });
  }

  /// From d_out [seq_len, head_dim + 1]: d_queries (assigned), and what queries owe to keys and
  /// values of their own chunk (added to).
  void to_features(const Real* d_out, Real* d_queries, Real* d_keys, Real* d_values) {
    Buffer d_pairs = buffer(kChunk * kChunk);
    each_chunk([&](Index begin, Index rows) {
      const Real* d = d_out + begin * width_;
      weigh_pairs(begin, rows);
      serial::gemm_nt(rows, rows, width_, d, width_, value(begin), width_, d_pairs.data(), kChunk);
      decay(rows, d_pairs.data());
      serial::gemm(rows, m_, rows, d_pairs.data(), kChunk, key(begin), m_, d_queries + begin * m_,
                   m_);
      serial::gemm_tn(rows, m_, rows, d_pairs.data(), kChunk, query(begin), m_, d_keys + begin * m_,
                      m_, Into::add);
      serial::gemm_tn(rows, width_, rows, pairs_.data(), kChunk, d, width_,
                      d_values + begin * width_, width_, Into::add);
      std::copy_n(d, rows * width_, scaled_.data());
      for (Index i = 0; i < rows; ++i)
        multiply_row(scaled_.data() + i * width_, width_, past(begin, i));
      serial::gemm_nt(rows, m_, width_, scaled_.data(), width_, sums_.data(), width_,
                      d_queries + begin * m_, m_, Into::add);
      enter(begin, rows);
    });
  }

  /// Back again: sums of what the queries of later chunks ask of a key, relative to the running
  /// largest there.
  void to_earlier_keys(const Real* d_out, Real* d_keys, Real* d_values) {
    std::ranges::fill(sums_, Real(0));
    Buffer asked = buffer(kChunk * std::max(m_, width_));
    for (Index begin = (tokens_ - 1) / kChunk * kChunk; begin >= 0; begin -= kChunk) {
      const Index rows = std::min(kChunk, tokens_ - begin);
      const Real here = largest_before(begin + rows);
      const auto add_scaled = [&](Real* to, Index n) {
        for (Index j = 0; j < rows; ++j) {
          const Real factor = std::exp(largest_[begin + j] - here);
          for (Index c = 0; c < n; ++c) to[(begin + j) * n + c] += factor * asked[j * n + c];
        }
      };
      serial::gemm_nt(rows, m_, width_, value(begin), width_, sums_.data(), width_, asked.data(),
                      m_);
      add_scaled(d_keys, m_);
      serial::gemm(rows, width_, m_, key(begin), m_, sums_.data(), width_, asked.data(), width_);
      add_scaled(d_values, width_);
      if (begin == 0) break;
      multiply_row(sums_.data(), m_ * width_, std::exp(largest_before(begin) - here));
      const Buffer scaled = times_past(begin, rows);
      serial::gemm_tn(m_, width_, rows, scaled.data(), m_, d_out + begin * width_, width_,
                      sums_.data(), width_, Into::add);
    }
  }

  const Real* query(Index token) const { return queries_.data() + token * m_; }
  const Real* key(Index token) const { return phi_.data() + token * m_; }
  const Real* value(Index token) const { return values_.data() + token * width_; }
  /// The largest exponent of the keys before a token; -inf before the first.
  Real largest_before(Index token) const { return token == 0 ? kNotRead : running_[token - 1]; }
  /// What the sums of the chunks before `begin` count for in row i of the chunk.
  Real past(Index begin, Index i) const {
    return std::exp(largest_before(begin) - running_[begin + i]);
  }
  Buffer times_past(Index begin, Index rows) const {
    Buffer scaled(query(begin), query(begin + rows));
    for (Index i = 0; i < rows; ++i) multiply_row(scaled.data() + i * m_, m_, past(begin, i));
    return scaled;
  }
  /// The chunk's own pairs: phi(q_i) . phi(k_j) exp(largest_j - running_i), 0 above the diagonal.
  void weigh_pairs(Index begin, Index rows) {
    for (Index i = 0; i < rows; ++i)
      simd::kernels().elementwise.exp_shifted(largest_.data() + begin, running_[begin + i], 1,
                                              decay_.data() + i * kChunk, i + 1);
    serial::gemm_nt(rows, rows, m_, query(begin), m_, key(begin), m_, pairs_.data(), kChunk);
    decay(rows, pairs_.data());
  }
  void decay(Index rows, Real* pairs) const {
    for (Index i = 0; i < rows; ++i, pairs += kChunk) {
      for (Index j = 0; j <= i; ++j) pairs[j] *= decay_[i * kChunk + j];
      std::fill(pairs + i + 1, pairs + rows, Real(0));
    }
  }
  /// Lets the chunk's keys and values enter the sums, relative to the largest at its end.
  void enter(Index begin, Index rows) {
    const Real here = largest_before(begin + rows);
    multiply_row(sums_.data(), m_ * width_, std::exp(largest_before(begin) - here));
    std::copy_n(key(begin), rows * m_, scaled_.data());
    for (Index j = 0; j < rows; ++j)
      multiply_row(scaled_.data() + j * m_, m_, std::exp(largest_[begin + j] - here));
    serial::gemm_tn(m_, width_, rows, scaled_.data(), m_, value(begin), width_, sums_.data(),
                    width_, Into::add);
  }

  /// phi = e^(x - max x) + floor, the largest x being one of the row's: from dphi to dx, in place.
  void through_query_exponentials(Real* d_queries) const {
    for (Index t = 0; t < tokens_; ++t) {
      const Real* phi = query(t);
      Real* d = d_queries + t * m_;
      Real sum = 0;
      for (Index r = 0; r < m_; ++r) {
        d[r] *= phi[r] - kFloor;
        sum += d[r];
      }
      d[std::max_element(phi, phi + m_) - phi] -= sum;
    }
  }

  /// phi = e^x, x_r = sqrt(scale) w_r . k - scale |k|^2 / 2: from dphi (overwritten) to dk.
  void through_key_features(Real* d_keys, Real* dk) const {
    Buffer sums = buffer(tokens_);
    for (Index t = 0; t < tokens_; ++t)
      for (Index r = 0; r < m_; ++r) {
        Real& d = d_keys[t * m_ + r];
        d *= key(t)[r];
        sums[t] += d;
      }
    through_projection(d_keys, dk, head_.kv_stride);
    for (Index t = 0; t < tokens_; ++t) {
      const Index row = t * head_.kv_stride;
      for (Index d = 0; d < head_.head_dim; ++d)
        dk[row + d] -= in_.scale * sums[t] * head_.k[row + d];
    }
  }

  /// dx [seq_len, head_dim] = sqrt(scale) d_exponents W, in rows `stride` apart.
  void through_projection(Real* d_exponents, Real* dx, Index stride) const {
    multiply_row(d_exponents, tokens_ * m_, std::sqrt(in_.scale));
    serial::gemm(tokens_, head_.head_dim, m_, d_exponents, m_, in_.features.data(), head_.head_dim,
                 dx, stride);
  }

  const PerformerInputs& in_;
  const HeadView head_;
  const Index tokens_, m_, width_, key_at_;  // width: of a value with a 1 behind it
  Buffer phi_;            // the keys' features [seq_len, m], each row relative to its largest
  Buffer largest_;        // [seq_len]: the row's largest exponent
  Buffer running_;        // [seq_len]: the largest of `largest` so far
  Buffer values_;         // [seq_len, head_dim + 1], the last a 1: numerator and denominator
  Buffer queries_;        // features of the query head at work [seq_len, m]
  Buffer pairs_, decay_;  // [kChunk, kChunk]
  Buffer scaled_, sums_;  // sums: [m, head_dim + 1]
};

Tensor orthogonal_features(Index num_features, Index head_dim, Rng& rng) {
  Tensor features({num_features, head_dim});
  std::vector<double> block(head_dim * head_dim);
  for (Index first = 0; first < num_features; first += head_dim) {
    for (double& x : block) x = rng.normal();
    const Index rows = std::min(head_dim, num_features - first);
    for (Index r = 0; r < rows; ++r) {
      double* row = block.data() + r * head_dim;
      // Twice: once leaves rounding where a row was nearly in the span of those before.
      for (int pass = 0; pass < 2; ++pass)
        for (Index p = 0; p < r; ++p) {
          const double* other = block.data() + p * head_dim;
          double dot = 0;
          for (Index d = 0; d < head_dim; ++d) dot += row[d] * other[d];
          for (Index d = 0; d < head_dim; ++d) row[d] -= dot * other[d];
        }
      double square = 0, length = 0;
      for (Index d = 0; d < head_dim; ++d) square += row[d] * row[d];
      for (Index d = 0; d < head_dim; ++d) {
        row[d] /= std::sqrt(square);
        const double x = rng.normal();
        length += x * x;
      }
      for (Index d = 0; d < head_dim; ++d)
        features.data()[(first + r) * head_dim + d] = static_cast<Real>(row[d] * std::sqrt(length));
    }
  }
  return features;
}

Variable performer_attention(const MechanismInputs& in, const Tensor& features) {
  const auto inputs = std::make_shared<const PerformerInputs>(
      PerformerInputs{in.q.value(), in.k.value(), in.v.value(), features, in.options.scale});
  check_attention_inputs({inputs->q, inputs->k, inputs->v, in.options});
  const Index heads = in.k.dim(0) * in.k.dim(2);
  Tensor out(in.q.shape()), denominators({in.q.dim(0), in.q.dim(2), in.q.dim(1)});
  parallel_chunks(heads, 1, [&, out = out.data(), den = denominators.data()](Index n, Index) {
    PerformerHead(*inputs, n).forward(out, den);
  });
  return Variable::from_op(
      "performer_attention", out, {in.q, in.k, in.v},
      [inputs, heads, out, denominators](const Tensor& d_out, Grads grads) mutable {
        Tensor dq(inputs->q.shape()), dk(inputs->k.shape()), dv(inputs->v.shape());
        parallel_chunks(heads, 1,
                        [&, dq = dq.data(), dk = dk.data(), dv = dv.data()](Index n, Index) {
                          PerformerHead(*inputs, n)
                              .backward(out.data(), denominators.data(), d_out.data(), dq, dk, dv);
                        });
        if (grads[0].wanted()) grads[0].add(dq);
        if (grads[1].wanted()) grads[1].add(dk);
        if (grads[2].wanted()) grads[2].add(dv);
      });
}

struct Performer final : MechanismWith<PerformerSettings> {
  Performer(const Settings& settings, const ModelConfig& shape) : MechanismWith(settings, shape) {
    check(shape.attn_logit_softcapping == 0,
          "performer: {} soft-caps its attention scores (attn_logit_softcapping {}), which random "
          "features do not support; choose another attention",
          shape.model_type, shape.attn_logit_softcapping);
    check(shape.widest_window() == 0,
          "performer: {} has layers with a sliding window of {}, which random features do not "
          "support; choose another attention",
          shape.model_type, shape.widest_window());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      layers[i].constants = orthogonal_features(config_.num_features, shape.head_dim, rng);
    }
  }

  std::string name() const override { return fmt::format("performer m={}", config_.num_features); }
  /// Its pairs count as all: each has a weight, though none is computed.
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    if (pairs != nullptr) *pairs += all_pairs(in);
    return performer_attention(in, constants(in));
  }
};

}  // namespace

AdapterKind performer_kind() {
  return mechanism_kind<Performer>("attention performer: random features");
}

}  // namespace focus
