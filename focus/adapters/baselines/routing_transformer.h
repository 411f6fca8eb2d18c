#pragma once

#include <cstdint>
#include <vector>

#include "autograd/base/random.h"
#include "autograd/ops.h"
#include "data/settings/config_values.h"

namespace focus {

/// Who belongs to a cluster.
enum class ClusterChoice {
  nearest,  // each token to its nearest centroid: causal
  balanced  // each centroid takes the same number of tokens, the nearest of the whole sequence: the
            // paper's. Whether a token is taken depends on later tokens: not causal
};
constexpr auto enum_names(ClusterChoice) { return enum_list("nearest", "balanced"); }

/// Routing Transformer (Roy et al. 2021, arXiv 2003.05997).
struct RoutingTransformerConfig {
  static constexpr const char* kKind = "routing_transformer";
  int num_clusters = 8;
  ClusterChoice selection = ClusterChoice::nearest;
  Index cluster_size = 0;    // w; of `balanced`
  Index local_window = 128;  // pairs with i - j <= local_window are always attended
  bool shared_qk = true;
  double decay = 0.999;  // lambda
  std::int64_t seed = 1;

  void visit(auto&& f) {
    f("num_clusters", num_clusters, "centroids per head", {1, 64});
    f("choice", selection,
      "nearest: each token goes to its nearest centroid (causal); balanced: each centroid takes "
      "the cluster_size nearest tokens of the sequence (not causal)");
    f("cluster_size", cluster_size,
      "tokens per centroid (balanced); 0: sequence length / num_clusters", {0, 1 << 27});
    f("local_window", local_window, "pairs with i - j <= local_window are always attended",
      {0, 1 << 27});
    f("shared_qk", shared_qk,
      "keys are the normalised queries, as in the paper; false for a base with separate keys");
    f("decay", decay, "lambda, decay of the centroids' moving average", {0, 1});
    f("seed", seed, "seed of the initial centroids", {0, 1e18});
  }
};

/// Random centroids [kv_heads, num_clusters, head_dim], each row of length sqrt(head_dim).
Tensor random_centroids(const RoutingTransformerConfig& config, Index kv_heads, Index head_dim,
                        Rng& rng);

/// What is routed, one vector for each token and key head [batch * kv_heads, seq_len, head_dim]:
/// the query through a layer norm without weights, which puts it onto the ball of radius
/// sqrt(head_dim) (section 4.1); where keys are not shared, the norm of the sum of the normalised
/// key and the normalised mean of its heads' normalised queries. The paper has no causal form with
/// keys of their own (algorithm 1 begins with K <- Q there); where it is not causal it routes
/// queries and keys apart. q and k as attention(): after rotary embeddings, where the model has
/// them, so that position routes too.
Tensor routing_vectors(const Tensor& q, const Tensor& k, bool shared_qk);

/// The clusters that each vector is a member of, bit c for cluster c
/// [batch * kv_heads * seq_len]; empty where no centroid took a token (balanced). A vector's
/// nearest centroid is the one with the largest product, the first of equals.
std::vector<std::uint64_t> cluster_members(const Tensor& vectors, const Tensor& centroids,
                                           const RoutingTransformerConfig& config);

/// Moves each centroid towards the mean of the vectors nearest to it, mu <- rate mean +
/// (1 - rate) mu with rate = max(1 - decay, 1 / (updates + 1)), and back onto the ball: the paper's
/// moving average (algorithm 1) of means rather than sums, so that it does not depend on
/// how many tokens a batch has, and started from what the first batches hold. Returns the new
/// centroids; those that nothing is nearest to stay. `updates` counts those made before.
Tensor updated_centroids(const Tensor& centroids, const Tensor& vectors, double decay,
                         std::int64_t updates);

/// Causal attention of each token to the earlier members of its clusters and to the local window,
/// itself always included, in one softmax (equation 14 with the local window added; the paper gives
/// some heads a local window and no clusters instead, and averages where several centroids took a
/// token). Scores are scaled by options.scale, of which algorithm 1 says nothing. `members` are
/// those of cluster_members(); at the cost of its pairs. With shared_qk the scores are those of the
/// normalised queries with each other, and k is not used. No gradient flows through the selection
/// of clusters. Shapes, soft-cap and sliding window as attention(); differentiable in q, k and v.
/// shared_qk is for one key head per query head.
Variable routing_attention(const Variable& q, const Variable& k, const Variable& v,
                           const AttentionOptions& options,
                           const std::vector<std::uint64_t>& members,
                           const RoutingTransformerConfig& config);

}  // namespace focus
