#include "focus/adapters/baselines/routing_transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"
#include "focus/adapters/mechanism.h"
#include "focus/method/attention/focus_attention.h"

namespace focus {
namespace {

constexpr Real kEps = Real(1e-5);

/// y = (x - mean) / sqrt(var + eps)
void normalise(const Real* x, const Real* weight, Real* y, Index n) {
  Real mean, inverse_std;
  simd::kernels().elementwise.norm(x, weight, nullptr, true, kEps, y, n, mean, inverse_std);
}

/// To the length sqrt(n).
void onto_ball(Real* x, Index n) {
  double square = 0;
  for (Index d = 0; d < n; ++d) square += static_cast<double>(x[d]) * static_cast<double>(x[d]);
  if (square == 0) return;
  const double factor = std::sqrt(static_cast<double>(n) / square);
  for (Index d = 0; d < n; ++d) x[d] = static_cast<Real>(x[d] * factor);
}

struct Clusters {
  Index batch, kv_heads, seq_len, head_dim, count;
  Clusters(const Tensor& vectors, const Tensor& centroids)
      : batch(vectors.dim(0) / centroids.dim(0)),
        kv_heads(centroids.dim(0)),
        seq_len(vectors.dim(1)),
        head_dim(vectors.dim(2)),
        count(centroids.dim(1)) {
    check(vectors.dim(0) % kv_heads == 0 && centroids.dim(2) == head_dim,
          "routing_transformer: centroids {} do not fit vectors {}", centroids.shape(),
          vectors.shape());
  }
};

/// Products of one sequence's and head's vectors with its head's centroids: [seq_len, count].
std::vector<Real> nearness(const Clusters& c, const Tensor& vectors, const Tensor& centroids,
                           Index n) {
  std::vector<Real> products(c.seq_len * c.count);
  serial::gemm_nt(c.seq_len, c.count, c.head_dim, vectors.data() + n * c.seq_len * c.head_dim,
                  c.head_dim, centroids.data() + n % c.kv_heads * c.count * c.head_dim, c.head_dim,
                  products.data(), c.count);
  return products;
}

Index nearest(const Clusters& c, const std::vector<Real>& products, Index token) {
  const Real* row = products.data() + token * c.count;
  return std::max_element(row, row + c.count) - row;
}

/// Key heads take the place of sequences: [batch, seq_len, kv_heads * n, d] ->
/// [batch * kv_heads, seq_len, n, d].
Variable by_key_head(const Variable& x, Index kv_heads) {
  const Index batch = x.dim(0), seq_len = x.dim(1), n = x.dim(2) / kv_heads, d = x.dim(3);
  return reshape(transpose(reshape(x, {batch, seq_len, kv_heads, n, d}), 1, 2),
                 {batch * kv_heads, seq_len, n, d});
}

struct RoutingTransformer final : MechanismWith<RoutingTransformerConfig> {
  RoutingTransformer(const Settings& settings, const ModelConfig& shape)
      : MechanismWith(settings, shape), routed_(layers.size()) {
    check(!config_.shared_qk || shape.num_attention_heads == shape.num_key_value_heads,
          "routing_transformer: shared_qk needs one key head per query head, but {} heads share {} "
          "key heads; set shared_qk=false",
          shape.num_attention_heads, shape.num_key_value_heads);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      layers[i].constants =
          random_centroids(config_, shape.num_key_value_heads, shape.head_dim, rng);
    }
  }

  std::string name() const override {
    return fmt::format("routing {}{}{}", config_.num_clusters, config_.shared_qk ? " shared" : "",
                       causal() ? "" : " balanced");
  }
  bool causal() const override { return config_.selection == ClusterChoice::nearest; }
  bool divides() const override { return false; }  // its centroids move from part to part
  bool separates_documents() const override { return false; }  // they follow a whole row

  /// Lets the batch of the last forward pass with a graph enter the centroids.
  Variable after_forward() override {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (!routed_[i].defined()) continue;
      layers[i].constants =
          updated_centroids(layers[i].constants, routed_[i], config_.decay, layers[i].updates++);
      routed_[i] = {};
    }
    return {};
  }

  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const Tensor vectors = routing_vectors(in.q.value(), in.k.value(), config_.shared_qk);
    const std::vector<std::uint64_t> members = cluster_members(vectors, constants(in), config_);
    if (grad_enabled()) routed_[in.layer] = vectors;
    if (pairs != nullptr) {
      const Index seq_len = in.q.dim(1), kv_heads = in.k.dim(2);
      std::int64_t attended = 0;  // of all key heads
      for (Index n = 0; n < vectors.dim(0); ++n)
        attended += count_pairs(std::span(members).subspan(n * seq_len, seq_len), seq_len,
                                config_.local_window, in.options.sliding_window)
                        .attended;
      PairCounts counts = all_pairs(in);
      counts.attended = (attended + kv_heads / 2) / kv_heads;
      *pairs += counts;
    }
    return routing_attention(in.q, in.k, in.v, in.options, members, config_);
  }
  /// Each key head's routing vectors with its centroids.
  double multiply_adds_to_select(const MechanismInputs& in, const PairCounts&) const override {
    return static_cast<double>(in.k.dim(0) * in.k.dim(1) * constants(in).size());
  }

 private:
  std::vector<Tensor> routed_;  // of each layer, the vectors that have yet to enter its centroids
};

}  // namespace

Tensor random_centroids(const RoutingTransformerConfig& config, Index kv_heads, Index head_dim,
                        Rng& rng) {
  Tensor centroids({kv_heads, config.num_clusters, head_dim});
  for (Real& x : centroids.span()) x = static_cast<Real>(rng.normal());
  for (Index r = 0; r < centroids.rows(); ++r) onto_ball(centroids.data() + r * head_dim, head_dim);
  return centroids;
}

Tensor routing_vectors(const Tensor& q, const Tensor& k, bool shared_qk) {
  const Index batch = q.dim(0), seq_len = q.dim(1), heads = q.dim(2), head_dim = q.dim(3);
  const Index kv_heads = k.dim(2), query_heads = heads / kv_heads;
  const Tensor weight = Tensor::full({head_dim}, 1);
  Tensor vectors({batch * kv_heads, seq_len, head_dim});
  parallel_chunks(batch * kv_heads, 1, [&, out = vectors.data()](Index first, Index last) {
    std::vector<Real> sum(head_dim), part(sum);
    for (Index n = first; n < last; ++n)
      for (Index t = 0; t < seq_len; ++t) {
        const Index sequence = n / kv_heads, head = n % kv_heads;
        const Real* queries =
            q.data() + ((sequence * seq_len + t) * heads + head * query_heads) * head_dim;
        Real* to = out + (n * seq_len + t) * head_dim;
        std::ranges::fill(sum, Real(0));
        const auto add = [&](const Real* x) {
          normalise(x, weight.data(), part.data(), head_dim);
          for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += part[d];
        };
        for (Index h = 0; h < query_heads; ++h) add(queries + h * head_dim);
        normalise(sum.data(), weight.data(), to, head_dim);
        if (shared_qk) continue;
        std::copy_n(to, head_dim, sum.data());
        add(k.data() + ((sequence * seq_len + t) * kv_heads + head) * head_dim);
        normalise(sum.data(), weight.data(), to, head_dim);
      }
  });
  return vectors;
}

std::vector<std::uint64_t> cluster_members(const Tensor& vectors, const Tensor& centroids,
                                           const RoutingTransformerConfig& config) {
  const Clusters c(vectors, centroids);
  std::vector<std::uint64_t> members(vectors.rows(), 0);
  const Index share = (c.seq_len + c.count - 1) / c.count;
  const Index size = std::min(c.seq_len, config.cluster_size > 0 ? config.cluster_size : share);
  parallel_chunks(vectors.dim(0), 1, [&](Index first, Index last) {
    std::vector<Index> order(c.seq_len);
    for (Index n = first; n < last; ++n) {
      const std::vector<Real> products = nearness(c, vectors, centroids, n);
      std::uint64_t* sets = members.data() + n * c.seq_len;
      if (config.selection == ClusterChoice::nearest) {
        for (Index t = 0; t < c.seq_len; ++t) sets[t] = std::uint64_t{1} << nearest(c, products, t);
        continue;
      }
      for (Index cluster = 0; cluster < c.count; ++cluster) {
        std::iota(order.begin(), order.end(), Index{0});
        const auto product = [&](Index t) { return products[t * c.count + cluster]; };
        std::ranges::nth_element(order, order.begin() + size - 1, [&](Index a, Index b) {
          return product(a) != product(b) ? product(a) > product(b) : a < b;
        });
        for (Index i = 0; i < size; ++i) sets[order[i]] |= std::uint64_t{1} << cluster;
      }
    }
  });
  return members;
}

Tensor updated_centroids(const Tensor& centroids, const Tensor& vectors, double decay,
                         std::int64_t updates) {
  const Clusters c(vectors, centroids);
  const double rate = std::max(1 - decay, 1 / static_cast<double>(updates + 1));
  Tensor result = centroids.clone();
  parallel_chunks(c.kv_heads, 1, [&, out = result.data()](Index first, Index last) {
    for (Index head = first; head < last; ++head) {
      std::vector<double> sums(c.count * c.head_dim, 0);
      std::vector<double> counts(c.count, 0);
      for (Index sequence = 0; sequence < c.batch; ++sequence) {
        const Index n = sequence * c.kv_heads + head;
        const std::vector<Real> products = nearness(c, vectors, centroids, n);
        for (Index t = 0; t < c.seq_len; ++t) {
          const Index cluster = nearest(c, products, t);
          const Real* x = vectors.data() + (n * c.seq_len + t) * c.head_dim;
          ++counts[cluster];
          for (Index d = 0; d < c.head_dim; ++d) sums[cluster * c.head_dim + d] += x[d];
        }
      }
      for (Index cluster = 0; cluster < c.count; ++cluster) {
        const double count = counts[cluster];
        if (count == 0) continue;
        Real* row = out + (head * c.count + cluster) * c.head_dim;
        for (Index d = 0; d < c.head_dim; ++d) {
          const double mean = sums[cluster * c.head_dim + d] / count;
          row[d] = static_cast<Real>(rate * mean + (1 - rate) * row[d]);
        }
        onto_ball(row, c.head_dim);
      }
    }
  });
  return result;
}

Variable routing_attention(const Variable& q, const Variable& k, const Variable& v,
                           const AttentionOptions& options,
                           const std::vector<std::uint64_t>& members,
                           const RoutingTransformerConfig& config) {
  const Index batch = q.dim(0), seq_len = q.dim(1), kv_heads = k.dim(2), head_dim = q.dim(3);
  Variable queries = q, keys = k;
  if (config.shared_qk)
    keys = queries = layer_norm(q, Variable(Tensor::full({head_dim}, 1)), {}, kEps);
  // The pairs are not gated: of g the number of groups counts alone.
  const Variable g(Tensor::zeros({batch * kv_heads, seq_len, config.num_clusters}));
  const Variable out = sparse_attention(
      by_key_head(queries, kv_heads), by_key_head(keys, kv_heads), by_key_head(v, kv_heads), g,
      options, {.local_window = config.local_window, .gated = false, .membership = members});
  const Index query_heads = q.dim(2) / kv_heads;
  return reshape(transpose(reshape(out, {batch, kv_heads, seq_len, query_heads, head_dim}), 1, 2),
                 q.shape());
}

AdapterKind routing_transformer_kind() {
  return mechanism_kind<RoutingTransformer>("attention routing_transformer: k-means clusters");
}

}  // namespace focus
