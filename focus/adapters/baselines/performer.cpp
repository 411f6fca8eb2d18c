#include "focus/adapters/baselines/performer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"
#include "focus/adapters/mechanism.h"

namespace focus {
namespace {

constexpr Index kChunk = 64;  // tokens between two steps of the prefix sums
constexpr Real kFloor = Real(1e-6);
constexpr Real kNone = -std::numeric_limits<Real>::infinity();

using Buffer = std::vector<Real>;
Buffer buffer(Index size) { return Buffer(static_cast<std::size_t>(size)); }

/// The largest of the first keys' largest exponents, up to and with `token`; -inf before the first.
Real largest_before(const Buffer& running, Index token) {
  return token < 0 ? kNone : running[static_cast<std::size_t>(token)];
}

void multiply_row(Real* row, Index n, Real factor) {
  for (Index i = 0; i < n; ++i) row[i] *= factor;
}

struct Sizes {
  Index batch, seq_len, heads, kv_heads, head_dim, features;
  Index query_heads() const { return heads / kv_heads; }  // that share a key head
  Index q_stride() const { return heads * head_dim; }
  Index kv_stride() const { return kv_heads * head_dim; }
  Index width() const { return head_dim + 1; }  // of a value with a 1 behind it
  Index query_offset(Index sequence, Index head) const {
    return (sequence * seq_len * heads + head) * head_dim;
  }
  Index key_offset(Index sequence, Index head) const {
    return (sequence * seq_len * kv_heads + head) * head_dim;
  }
};

/// One key head of one sequence: its keys' features and its values.
class KeySide {
 public:
  Buffer phi;      // [seq_len, m], each row relative to its largest
  Buffer largest;  // [seq_len]: the row's largest exponent
  Buffer running;  // [seq_len]: the largest of `largest` so far
  Buffer values;   // [seq_len, head_dim + 1], the last a 1: numerator and denominator in one

  KeySide(const Sizes& s, const Real* k, const Real* v, const Real* w, Real scale)
      : phi(buffer(s.seq_len * s.features)),
        largest(buffer(s.seq_len)),
        running(largest),
        values(buffer(s.seq_len * s.width())) {
    const Real root = std::sqrt(scale);
    serial::gemm_nt(s.seq_len, s.features, s.head_dim, k, s.kv_stride(), w, s.head_dim, phi.data(),
                    s.features);
    for (Index t = 0; t < s.seq_len; ++t) {
      const Real* key = k + t * s.kv_stride();
      Real square = 0;
      for (Index d = 0; d < s.head_dim; ++d) square += key[d] * key[d];
      Real* row = phi.data() + t * s.features;
      const Real top = *std::max_element(row, row + s.features);
      const auto at = static_cast<std::size_t>(t);
      largest[at] = root * top - scale * square / 2;
      running[at] = std::max(largest[at], largest_before(running, t - 1));
      for (Index r = 0; r < s.features; ++r) row[r] = root * (row[r] - top);
      simd::kernels().elementwise.exp_shifted(row, 0, 1, row, s.features);
      std::copy_n(v + t * s.kv_stride(), s.head_dim, values.data() + t * s.width());
      values[static_cast<std::size_t>(t * s.width() + s.head_dim)] = 1;
    }
  }
};

/// Queries' features [seq_len, m]: exp relative to the row's largest, plus kFloor. |q|^2 / 2 is the
/// same for all of a row and cancels.
Buffer query_features(const Sizes& s, const Real* q, const Real* w, Real scale) {
  Buffer phi = buffer(s.seq_len * s.features);
  const Real root = std::sqrt(scale);
  serial::gemm_nt(s.seq_len, s.features, s.head_dim, q, s.q_stride(), w, s.head_dim, phi.data(),
                  s.features);
  for (Index t = 0; t < s.seq_len; ++t) {
    Real* row = phi.data() + t * s.features;
    const Real top = *std::max_element(row, row + s.features);
    for (Index r = 0; r < s.features; ++r) row[r] = root * (row[r] - top);
    simd::kernels().elementwise.exp_shifted(row, 0, 1, row, s.features);
    for (Index r = 0; r < s.features; ++r) row[r] += kFloor;
  }
  return phi;
}

/// Walks one query head over its key head in chunks of tokens.
class Walk {
 public:
  Walk(const Sizes& sizes, const KeySide& keys, const Buffer& queries)
      : s_(sizes),
        keys_(keys),
        queries_(queries),
        pairs_(buffer(kChunk * kChunk)),
        decay_(buffer(kChunk * kChunk)),
        scaled_(buffer(kChunk * std::max(sizes.features, sizes.width()))),
        sums_(buffer(sizes.features * sizes.width())) {}

  /// out [seq_len, head_dim + 1]: numerators and denominators.
  void forward(Real* out) {
    each_chunk([&](Index begin, Index end) {
      const Index rows = end - begin;
      decays(begin, end);
      weights(begin, end);
      serial::gemm(rows, s_.width(), rows, pairs_.data(), kChunk, value(begin), s_.width(),
                   out + begin * s_.width(), s_.width());
      const Buffer from_before = times_past(queries_.data() + begin * s_.features, begin, end);
      serial::gemm(rows, s_.width(), s_.features, from_before.data(), s_.features, sums_.data(),
                   s_.width(), out + begin * s_.width(), s_.width(), Into::add);
      enter(begin, end);
    });
  }

  /// From d_out [seq_len, head_dim + 1]: d_queries (assigned), d_keys and d_values (added to).
  void backward(const Real* d_out, Real* d_queries, Real* d_keys, Real* d_values) {
    const Index m = s_.features, width = s_.width();
    std::ranges::fill(sums_, Real(0));
    Buffer d_pairs = buffer(kChunk * kChunk);
    each_chunk([&](Index begin, Index end) {
      const Index rows = end - begin;
      const Real* d = d_out + begin * width;
      const Real* q = queries_.data() + begin * m;
      decays(begin, end);
      serial::gemm_nt(rows, rows, width, d, width, value(begin), width, d_pairs.data(), kChunk);
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < rows; ++j) {
          Real& x = d_pairs[static_cast<std::size_t>(i * kChunk + j)];
          x = j <= i ? x * decay_[static_cast<std::size_t>(i * kChunk + j)] : Real(0);
        }
      weights(begin, end);
      serial::gemm(rows, m, rows, d_pairs.data(), kChunk, key(begin), m, d_queries + begin * m, m);
      serial::gemm_tn(rows, m, rows, d_pairs.data(), kChunk, q, m, d_keys + begin * m, m,
                      Into::add);
      serial::gemm_tn(rows, width, rows, pairs_.data(), kChunk, d, width, d_values + begin * width,
                      width, Into::add);
      std::copy_n(d, rows * width, scaled_.data());
      for (Index i = 0; i < rows; ++i)
        multiply_row(scaled_.data() + i * width, width, past(begin, i));
      serial::gemm_nt(rows, m, width, scaled_.data(), width, sums_.data(), width,
                      d_queries + begin * m, m, Into::add);
      enter(begin, end);
    });
    // Back again: sums of what later queries ask of a key, relative to the running largest there.
    std::ranges::fill(sums_, Real(0));
    Buffer asked = buffer(kChunk * std::max(m, width));
    for (Index begin = (s_.seq_len - 1) / kChunk * kChunk; begin >= 0; begin -= kChunk) {
      const Index end = std::min(s_.seq_len, begin + kChunk), rows = end - begin;
      const Real here = largest_before(keys_.running, end - 1);
      const auto add_scaled = [&](Real* to, Index n) {
        for (Index j = 0; j < rows; ++j) {
          const Real factor = std::exp(keys_.largest[static_cast<std::size_t>(begin + j)] - here);
          for (Index c = 0; c < n; ++c)
            to[(begin + j) * n + c] += factor * asked[static_cast<std::size_t>(j * n + c)];
        }
      };
      serial::gemm_nt(rows, m, width, value(begin), width, sums_.data(), width, asked.data(), m);
      add_scaled(d_keys, m);
      serial::gemm(rows, width, m, key(begin), m, sums_.data(), width, asked.data(), width);
      add_scaled(d_values, width);
      if (begin == 0) break;
      multiply_row(sums_.data(), m * width,
                   std::exp(largest_before(keys_.running, begin - 1) - here));
      const Buffer scaled = times_past(queries_.data() + begin * m, begin, end);
      serial::gemm_tn(m, width, rows, scaled.data(), m, d_out + begin * width, width, sums_.data(),
                      width, Into::add);
    }
  }

 private:
  template <class F>
  void each_chunk(F&& f) {
    for (Index begin = 0; begin < s_.seq_len; begin += kChunk)
      f(begin, std::min(s_.seq_len, begin + kChunk));
  }
  const Real* key(Index token) const { return keys_.phi.data() + token * s_.features; }
  const Real* value(Index token) const { return keys_.values.data() + token * s_.width(); }
  /// What the sums of the chunks before `begin` count for in row i of the chunk.
  Real past(Index begin, Index i) const {
    return std::exp(largest_before(keys_.running, begin - 1) -
                    keys_.running[static_cast<std::size_t>(begin + i)]);
  }
  Buffer times_past(const Real* rows_of, Index begin, Index end) const {
    Buffer scaled(rows_of, rows_of + (end - begin) * s_.features);
    for (Index i = 0; i < end - begin; ++i)
      multiply_row(scaled.data() + i * s_.features, s_.features, past(begin, i));
    return scaled;
  }
  /// exp(largest_j - running_i) of the chunk's pairs.
  void decays(Index begin, Index end) {
    for (Index i = 0; i < end - begin; ++i)
      simd::kernels().elementwise.exp_shifted(keys_.largest.data() + begin,
                                              keys_.running[static_cast<std::size_t>(begin + i)], 1,
                                              decay_.data() + i * kChunk, i + 1);
  }
  /// The chunk's own pairs: phi(q_i) . phi(k_j), 0 above the diagonal.
  void weights(Index begin, Index end) {
    const Index rows = end - begin;
    serial::gemm_nt(rows, rows, s_.features, queries_.data() + begin * s_.features, s_.features,
                    key(begin), s_.features, pairs_.data(), kChunk);
    for (Index i = 0; i < rows; ++i) {
      Real* row = pairs_.data() + i * kChunk;
      for (Index j = 0; j <= i; ++j) row[j] *= decay_[static_cast<std::size_t>(i * kChunk + j)];
      std::fill(row + i + 1, row + rows, Real(0));
    }
  }
  /// Lets the chunk's keys and values enter the sums, relative to the largest at its end.
  void enter(Index begin, Index end) {
    const Real here = largest_before(keys_.running, end - 1);
    multiply_row(sums_.data(), s_.features * s_.width(),
                 std::exp(largest_before(keys_.running, begin - 1) - here));
    std::copy_n(key(begin), (end - begin) * s_.features, scaled_.data());
    for (Index j = 0; j < end - begin; ++j)
      multiply_row(scaled_.data() + j * s_.features, s_.features,
                   std::exp(keys_.largest[static_cast<std::size_t>(begin + j)] - here));
    serial::gemm_tn(s_.features, s_.width(), end - begin, scaled_.data(), s_.features, value(begin),
                    s_.width(), sums_.data(), s_.width(), Into::add);
  }

  const Sizes& s_;
  const KeySide& keys_;
  const Buffer& queries_;
  Buffer pairs_, decay_;  // [kChunk, kChunk]
  Buffer scaled_;
  Buffer sums_;  // [m, head_dim + 1]
};

/// Everything that forward and backward share.
struct Inputs {
  Sizes sizes;
  Tensor q, k, v, features;
  Real scale;
};

/// One key head of one sequence, and the query heads that share it.
class KeyHead {
 public:
  /// n: key heads of the sequences before, and those before it in its own.
  KeyHead(const Inputs& in, Index n)
      : in_(in),
        s_(in.sizes),
        sequence_(n / s_.kv_heads),
        kv_head_(n % s_.kv_heads),
        key_at_(s_.key_offset(sequence_, kv_head_)),
        keys_(s_, in.k.data() + key_at_, in.v.data() + key_at_, in.features.data(), in.scale) {}

  /// Writes the query heads' rows of out and denominators [batch, heads, seq_len].
  void forward(Real* out, Real* denominators) const {
    Buffer sums = buffer(s_.seq_len * s_.width());
    each_query_head([&](Index head, Index from, const Buffer& queries) {
      Walk(s_, keys_, queries).forward(sums.data());
      for (Index t = 0; t < s_.seq_len; ++t) {
        const Real* row = sums.data() + t * s_.width();
        denominators[(sequence_ * s_.heads + head) * s_.seq_len + t] = row[s_.head_dim];
        for (Index d = 0; d < s_.head_dim; ++d)
          out[from + t * s_.q_stride() + d] = row[d] / row[s_.head_dim];
      }
    });
  }

  /// Writes the query heads' rows of dq and the key head's of dk and dv.
  void backward(const Real* out, const Real* denominators, const Real* d_out, Real* dq, Real* dk,
                Real* dv) const {
    const Index m = s_.features;
    Buffer d_keys = buffer(s_.seq_len * m), d_values = buffer(s_.seq_len * s_.width());
    Buffer d_queries = buffer(s_.seq_len * m), d_sums = buffer(s_.seq_len * s_.width());
    each_query_head([&](Index head, Index from, const Buffer& queries) {
      through_quotient(out + from, denominators + (sequence_ * s_.heads + head) * s_.seq_len,
                       d_out + from, d_sums.data());
      Walk(s_, keys_, queries)
          .backward(d_sums.data(), d_queries.data(), d_keys.data(), d_values.data());
      through_query_exponentials(queries.data(), d_queries.data());
      through_projection(d_queries.data(), dq + from, s_.q_stride());
    });
    for (Index t = 0; t < s_.seq_len; ++t)
      std::copy_n(d_values.data() + t * s_.width(), s_.head_dim, dv + key_at_ + t * s_.kv_stride());
    through_key_features(d_keys.data(), dk + key_at_);
  }

 private:
  /// Calls f(head, where it starts in q, its features) for each query head of the key head.
  template <class F>
  void each_query_head(F&& f) const {
    for (Index h = 0; h < s_.query_heads(); ++h) {
      const Index head = kv_head_ * s_.query_heads() + h, from = s_.query_offset(sequence_, head);
      f(head, from, query_features(s_, in_.q.data() + from, in_.features.data(), in_.scale));
    }
  }

  /// out = N / D:  dN = d_out / D,  dD = -(d_out . out) / D, side by side in d_sums.
  void through_quotient(const Real* out, const Real* denominators, const Real* d_out,
                        Real* d_sums) const {
    for (Index t = 0; t < s_.seq_len; ++t) {
      const Index row = t * s_.q_stride();
      Real* d = d_sums + t * s_.width();
      Real dot = 0;
      for (Index c = 0; c < s_.head_dim; ++c) {
        d[c] = d_out[row + c] / denominators[t];
        dot += d[c] * out[row + c];
      }
      d[s_.head_dim] = -dot;
    }
  }

  /// phi = e^(x - max x) + floor, the largest x being one of the row's: from dphi to dx, in place.
  void through_query_exponentials(const Real* queries, Real* d_queries) const {
    const Index m = s_.features;
    for (Index t = 0; t < s_.seq_len; ++t) {
      const Real* phi = queries + t * m;
      Real* d = d_queries + t * m;
      Real sum = 0;
      for (Index r = 0; r < m; ++r) {
        d[r] *= phi[r] - kFloor;
        sum += d[r];
      }
      d[std::max_element(phi, phi + m) - phi] -= sum;
    }
  }

  /// phi = e^x, x_r = sqrt(scale) w_r . k - scale |k|^2 / 2: from dphi (overwritten) to dk.
  void through_key_features(Real* d_keys, Real* dk) const {
    const Index m = s_.features;
    Buffer sums = buffer(s_.seq_len);
    for (Index t = 0; t < s_.seq_len; ++t)
      for (Index r = 0; r < m; ++r) {
        Real& d = d_keys[t * m + r];
        d *= keys_.phi[static_cast<std::size_t>(t * m + r)];
        sums[static_cast<std::size_t>(t)] += d;
      }
    through_projection(d_keys, dk, s_.kv_stride());
    for (Index t = 0; t < s_.seq_len; ++t) {
      const Index row = t * s_.kv_stride();
      for (Index d = 0; d < s_.head_dim; ++d)
        dk[row + d] -= in_.scale * sums[static_cast<std::size_t>(t)] * in_.k[key_at_ + row + d];
    }
  }

  /// dx [seq_len, head_dim] = sqrt(scale) d_exponents W, in rows `stride` apart.
  void through_projection(Real* d_exponents, Real* dx, Index stride) const {
    multiply_row(d_exponents, s_.seq_len * s_.features, std::sqrt(in_.scale));
    serial::gemm(s_.seq_len, s_.head_dim, s_.features, d_exponents, s_.features,
                 in_.features.data(), s_.head_dim, dx, stride);
  }

  const Inputs& in_;
  const Sizes& s_;
  const Index sequence_, kv_head_, key_at_;
  const KeySide keys_;
};

}  // namespace

void PerformerConfig::validate() const {
  check(num_features >= 1, "performer.num_features must be at least 1, not {}", num_features);
}

Tensor orthogonal_features(Index num_features, Index head_dim, Rng& rng) {
  Tensor features({num_features, head_dim});
  std::vector<double> block(static_cast<std::size_t>(head_dim * head_dim));
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

Variable performer_attention(const Variable& q, const Variable& k, const Variable& v,
                             const Tensor& features, const AttentionOptions& options) {
  check_attention_inputs({q.value(), k.value(), v.value(), options});
  check(options.softcap == 0,
        "performer: random features do not support soft-capped scores; choose another attention");
  check(
      options.sliding_window == 0,
      "performer: random features do not support a sliding window of {}; choose another attention",
      options.sliding_window);
  check(features.rank() == 2 && features.dim(1) == q.dim(3),
        "performer: features {} do not fit q {}", features.shape(), q.shape());
  const Inputs in{{q.dim(0), q.dim(1), q.dim(2), k.dim(2), q.dim(3), features.dim(0)},
                  q.value(),
                  k.value(),
                  v.value(),
                  features,
                  options.scale};
  const Index tasks = in.sizes.batch * in.sizes.kv_heads;
  Tensor out(q.shape()), denominators({in.sizes.batch, in.sizes.heads, in.sizes.seq_len});
  parallel_chunks(tasks, 1,
                  [&, out = out.data(), den = denominators.data()](Index first, Index last) {
                    for (Index n = first; n < last; ++n) KeyHead(in, n).forward(out, den);
                  });
  return Variable::from_op(
      "performer_attention", out, {q, k, v},
      [in, tasks, out, denominators](const Tensor& d_out, Grads grads) {
        Tensor dq(in.q.shape()), dk(in.k.shape()), dv(in.v.shape());
        parallel_chunks(
            tasks, 1, [&, dq = dq.data(), dk = dk.data(), dv = dv.data()](Index first, Index last) {
              for (Index n = first; n < last; ++n)
                KeyHead(in, n).backward(out.data(), denominators.data(), d_out.data(), dq, dk, dv);
            });
        if (grads[0].wanted()) grads[0].add(dq);
        if (grads[1].wanted()) grads[1].add(dk);
        if (grads[2].wanted()) grads[2].add(dv);
      });
}

namespace {

class PerformerMechanism final : public Mechanism {
 public:
  using Settings = PerformerConfig;
  PerformerMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("performer", settings, shape), config_(settings) {
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

 protected:
  /// Its pairs count as all: each has a weight, though none is computed.
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    if (pairs != nullptr) *pairs += all_pairs(in);
    return performer_attention(in.q, in.k, in.v, constants(in), in.options);
  }

 private:
  const Settings config_;
};

}  // namespace

AdapterKind performer_kind() {
  return mechanism_kind<PerformerMechanism>("performer", "attention performer: random features");
}

}  // namespace focus
