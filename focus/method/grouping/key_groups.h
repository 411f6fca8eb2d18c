#pragma once

#include <cstdint>

#include "autograd/base/random.h"
#include "autograd/variable.h"

namespace focus {

/// One layer's groups of keys, each key head's its own.
struct KeyGroups {
  Variable centroids;        // C [kv_heads, num_groups, head_dim]
  Variable bias;             // b [kv_heads, num_groups]: added to a class's score
  Variable beta;             // [kv_heads, num_groups]: added to a column's score
  Tensor temperature;        // tau [1] of the soft classes that the backward pass goes through
  Tensor spread;             // [1]: standard deviation of the centroids as they were fitted
  Tensor needs;              // [heads]: of each query head, see head_budgets(); 1 until measured
  std::int64_t updates = 0;  // keys of a head that the centroids were fitted on; 0: random
  void visit(auto&& f) {
    f("centroids", centroids);
    f("bias", bias);
    f("beta", beta);
  }
};

/// C ~ normal(0, 1), b and beta 0, tau and spread 1.
KeyGroups make_key_groups(Index num_groups, Index kv_heads, Index head_dim, Rng& rng);

/// Fits the centroids by k-means of keys as attention sees them (after their norm, bias and rotary
/// turn), key head by key head: K keys drawn at random, then 12 rounds of Lloyd's; a centroid
/// without keys becomes a random key. b and beta become 0, and tau such that a key's largest soft
/// class is 0.85 in the mean. The same bits for any number of threads.
/// keys [tokens, kv_heads, head_dim]. Throws std::invalid_argument for fewer tokens than groups.
void fit_key_groups(KeyGroups& groups, const Tensor& keys, std::uint64_t seed);

}  // namespace focus
