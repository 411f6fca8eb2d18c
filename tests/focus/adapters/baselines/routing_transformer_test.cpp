#include "focus/adapters/baselines/routing_transformer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

using Config = RoutingTransformerConfig;

Tensor centroids_of(const Config& config, const BaselineCase& c) {
  Rng rng(5);
  return random_centroids(config, c.kv_heads, c.head_dim, rng);
}
Variable run(const Variables& x, const Tensor& centroids, const Config& config,
             const AttentionOptions& options) {
  const Tensor vectors = routing_vectors(x[0].value(), x[1].value(), config.shared_qk);
  return routing_attention(x[0], x[1], x[2], options, cluster_members(vectors, centroids, config),
                           config);
}

std::vector<double> normalised(std::vector<double> x) {
  double mean = 0, variance = 0;
  for (const double y : x) mean += y / static_cast<double>(x.size());
  for (const double y : x) variance += (y - mean) * (y - mean) / static_cast<double>(x.size());
  for (double& y : x) y = (y - mean) / std::sqrt(variance + 1e-5);
  return x;
}
std::vector<double> query_at(const NaiveQuery& q, Index token, Index head) {
  std::vector<double> x;
  for (Index d = 0; d < q.head_dim(); ++d) x.push_back(q.q_of(token, head, d));
  return x;
}
/// The vector that routes a token, of the key head of q.
std::vector<double> routed(const NaiveQuery& q, Index token, bool shared) {
  const Index group = q.heads() / q.kv_heads();
  std::vector<double> sum(q.head_dim(), 0);
  for (Index g = 0; g < group; ++g) {
    const auto part = normalised(query_at(q, token, q.kv_head() * group + g));
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += part[d];
  }
  sum = normalised(sum);
  if (shared) return sum;
  std::vector<double> key;
  for (Index d = 0; d < q.head_dim(); ++d) key.push_back(q.k(token, d));
  key = normalised(key);
  for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += key[d];
  return normalised(sum);
}
double product(const NaiveQuery& q, Index token, Index cluster, const Tensor& centroids,
               bool shared) {
  const auto x = routed(q, token, shared);
  double dot = 0;
  for (Index d = 0; d < q.head_dim(); ++d)
    dot += x[d] * double(centroids[(q.kv_head() * centroids.dim(1) + cluster) * q.head_dim() + d]);
  return dot;
}

/// The formula, with every selection made again for every pair.
Tensor naive(const std::vector<Tensor>& x, const Tensor& centroids, const Config& config,
             const AttentionOptions& options) {
  const Index clusters = centroids.dim(1), seq_len = x[0].dim(1);
  const Index size = std::min(
      seq_len, config.cluster_size > 0 ? config.cluster_size : (seq_len + clusters - 1) / clusters);
  // Each token's row of members, for each sequence and key head.
  std::vector<std::vector<bool>> member;
  for (Index n = 0; n < x[0].dim(0) * x[1].dim(2); ++n) {
    const NaiveQuery q{x, n / x[1].dim(2), 0, n % x[1].dim(2) * (x[0].dim(2) / x[1].dim(2))};
    std::vector<std::vector<double>> local;
    for (Index t = 0; t < seq_len; ++t) {
      local.emplace_back();
      for (Index c = 0; c < clusters; ++c)
        local.back().push_back(product(q, t, c, centroids, config.shared_qk));
    }
    for (Index t = 0; t < seq_len; ++t) {
      std::vector<bool> in;
      for (Index c = 0; c < clusters; ++c) {
        const auto at = static_cast<std::size_t>(c);
        const double own = local[t][at];
        if (config.selection == ClusterChoice::nearest) {
          in.push_back(own == *std::ranges::max_element(local[t]));
        } else {
          const auto better =
              std::ranges::count_if(local, [&](const auto& row) { return row[at] > own; });
          in.push_back(better < size);
        }
      }
      member.push_back(in);
    }
  }
  return naive_attention(x, [&](const NaiveQuery& q, Index j) -> double {
    if (!q.sees(j, options)) return 0;
    const Index n = (q.sequence * q.kv_heads() + q.kv_head()) * seq_len;
    const auto& a = member[n + q.token];
    const auto& b = member[n + j];
    bool meet = q.token - j <= config.local_window;
    for (std::size_t c = 0; c < a.size(); ++c) meet = meet || (a[c] && b[c]);
    if (!meet) return 0;
    if (!config.shared_qk) return std::exp(q.score(j, options));
    const auto own = normalised(query_at(q, q.token, q.head));
    const auto other = normalised(query_at(q, j, q.head));
    double s = 0;
    for (std::size_t d = 0; d < own.size(); ++d) s += own[d] * other[d];
    s *= static_cast<double>(options.scale);
    const auto cap = static_cast<double>(options.softcap);
    return std::exp(cap > 0 ? cap * std::tanh(s / cap) : s);
  });
}

TEST(RoutingTransformer, IsTheFormulaOfThePaper) {
  for (const ClusterChoice selection : {ClusterChoice::nearest, ClusterChoice::balanced})
    for (const bool shared : {true, false})
      for (const Index local : {Index{0}, Index{6}})
        for (const Index sliding : {Index{0}, Index{20}})
          for (const Real softcap : {Real(0), Real(1.5)}) {
            const Config config{.num_clusters = 4,
                                .selection = selection,
                                .cluster_size = local == 0 ? 0 : 25,
                                .local_window = local,
                                .shared_qk = shared};
            const BaselineCase c{.heads = shared ? 2 : 6};
            const auto x = inputs_of(c);
            const Tensor centroids = centroids_of(config, c);
            const AttentionOptions options{
                .scale = Real(0.35), .softcap = softcap, .sliding_window = sliding};
            const Tensor actual = run({x[0], x[1], x[2]}, centroids, config, options).value();
            EXPECT_LE(relative_difference(actual, naive(x, centroids, config, options)),
                      tolerance(1e-5, 1e-9))
                << (selection == ClusterChoice::nearest ? "nearest" : "balanced") << ", shared "
                << shared << ", local " << local << ", sliding " << sliding;
          }
}

TEST(RoutingTransformer, Gradient) {
  for (const ClusterChoice selection : {ClusterChoice::nearest, ClusterChoice::balanced})
    for (const bool shared : {true, false}) {
      const BaselineCase c{.batch = 1, .seq_len = 9, .heads = shared ? 2 : 4, .head_dim = 4};
      const Config config{
          .num_clusters = 3, .selection = selection, .local_window = 1, .shared_qk = shared};
      const auto x = inputs_of(c);
      // The members stay as they are: a step that moves a token elsewhere has no derivative.
      const auto members =
          cluster_members(routing_vectors(x[0], x[1], shared), centroids_of(config, c), config);
      // A shared key is a query: k has no part in the output.
      const auto attend = [&](const Variable& q, const Variable& k, const Variable& v) {
        return routing_attention(q, k, v, {.scale = Real(0.35)}, members, config);
      };
      if (shared)
        expect_gradients([&](const Variables& v) { return attend(v[0], Variable(x[1]), v[1]); },
                         {x[0], x[2]});
      else
        expect_gradients([&](const Variables& v) { return attend(v[0], v[1], v[2]); }, x);
    }
}

TEST(RoutingTransformer, NearestIsCausalAndBalancedIsNot) {
  const BaselineCase c{.seq_len = 90};
  Config config{.num_clusters = 4, .local_window = 3};
  const Tensor centroids = centroids_of(config, c);
  const auto attend = [&](const std::vector<Tensor>& x) {
    return run({x[0], x[1], x[2]}, centroids, config, {.scale = Real(0.35)}).value();
  };
  expect_causal(inputs_of(c), 40, attend);
  config.selection = ClusterChoice::balanced;
  const auto x = inputs_of(c);
  std::vector<Tensor> changed = {x[0].clone(), x[1], x[2]};
  for (Index e = 80 * 2 * 8; e < 90 * 2 * 8; ++e) changed[0].data()[e] = 5;
  const Tensor before = attend(x), after = attend(changed);
  EXPECT_FALSE(std::equal(before.data(), before.data() + 80 * 2 * 8, after.data()));
}

TEST(RoutingTransformer, CentroidsMoveToTheMeansOfTheirMembers) {
  // Two clumps on the ball of radius sqrt(2), one head, and a centroid near each.
  const Tensor vectors = tensor_of({1, 4, 2}, {1.4, 0.2, 1.4, -0.2, -1.4, 0.3, -1.4, -0.1});
  const Tensor centroids = tensor_of({1, 2, 2}, {1, 1, -1, 1});
  const Tensor first = updated_centroids(centroids, vectors, 0.9, 0);
  EXPECT_NEAR(first[0], std::sqrt(2.0), 1e-6);  // all of the first batch: (1.4, 0), to sqrt(2)
  EXPECT_NEAR(first[1], 0, 1e-6);
  const Tensor later = updated_centroids(centroids, vectors, 0.9, 1000);
  const double x = 0.9 * 1 + 0.1 * 1.4, y = 0.9 * 1, length = std::sqrt((x * x + y * y) / 2);
  EXPECT_NEAR(later[0], x / length, 1e-6);
  EXPECT_NEAR(later[1], y / length, 1e-6);
  // Nothing is nearest to the second: it stays.
  const Tensor one_side = tensor_of({1, 2, 2}, {1.4, 0.2, 1.4, -0.2});
  EXPECT_EQ(updated_centroids(centroids, one_side, 0.9, 0)[2], Real(-1));
}

TEST(RoutingTransformer, SameBitsForAnyThreads) {
  expect_same_bits_for_any_threads("routing transformer", [] {
    const BaselineCase c{.seq_len = 130};
    const Config config{.num_clusters = 4, .local_window = 8};
    const Tensor centroids = centroids_of(config, c);
    const Variables x = leaves(inputs_of(c));
    const Variable y = run(x, centroids, config, {.scale = Real(0.35)});
    backward(y);
    const Tensor vectors = routing_vectors(x[0].value(), x[1].value(), true);
    return std::vector<Tensor>{y.value(), x[0].grad(), x[2].grad(),
                               updated_centroids(centroids, vectors, 0.9, 3)};
  });
}

}  // namespace
}  // namespace focus
