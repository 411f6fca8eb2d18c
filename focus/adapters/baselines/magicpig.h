#pragma once

#include "autograd/base/random.h"
#include "autograd/ops.h"
#include "focus/method/grouping/pair_counts.h"

namespace focus {

/// MagicPIG (Chen et al. 2024, arXiv 2410.16179): attention estimated from keys that
/// locality-sensitive hashing samples; token selection at inference.
struct MagicPigConfig {
  int bits = 8;             // K
  int tables = 75;          // L
  Index sinks = 4;          // first tokens, always attended
  Index local_window = 15;  // pairs with i - j <= local_window are always attended
  bool centred = true;
  std::int64_t seed = 1;

  template <class F>
  void visit(F&& f) {
    f("bits", bits, "K, bits per hash; more bits sample fewer keys", {0, 32});
    f("tables", tables, "L, hash tables; more tables sample more keys", {2, 4096});
    f("sinks", sinks, "first tokens of a sequence (attention sinks), always attended",
      {0, 1 << 27});
    f("local_window", local_window, "pairs with i - j <= local_window are always attended",
      {0, 1 << 27});
    f("centred", centred, "hash keys after subtracting the mean of earlier keys");
    f("seed", seed, "seed of the hash functions", {0, 1e18});
  }
  void validate() const;
};

/// Normal directions [tables * bits, head_dim] whose signs are the hashes.
Tensor hash_directions(const MagicPigConfig& config, Index head_dim, Rng& rng);

/// The chance that a key at angle theta to the query is sampled: with p = 1 - theta / pi, that of
/// equal hashes in two or more of L tables, 1 - (1 - p^K)^L - L p^K (1 - p^K)^(L-1). `cosine` is of
/// theta.
double sampling_probability(double cosine, int bits, int tables);

/// Their algorithm 1 at every position: keys whose hashes equal the query's in two tables or more
/// are attended, each weighed by 1 over the chance u of that (equations 9 to 11),
///   out = sum over S of e^(s_j) / u_j v_j / sum over S of e^(s_j) / u_j,
/// where S also holds the sinks and the local window, with u = 1. Hashes are of the query and of
/// the key less the mean of keys (softmax does not see it, angles spread out); the mean here is
/// that of the keys before the query's block of 64 tokens, so that it is causal; the paper takes
/// that of the whole prompt. They leave layers 0 and 16 of their models dense; here every layer
/// samples. As in their experiments keys are not lengthened to one norm (equation 8). With 0 bits
/// every key is sampled, and it is attention(). Soft-cap and sliding window are those of `options`.
/// directions [tables * bits, head_dim] as hash_directions() draws them. Not differentiable: throws
/// where a gradient is wanted. Shapes as attention(); `pairs` as sparq_attention()'s.
Variable magicpig_attention(const Variable& q, const Variable& k, const Variable& v,
                            const Tensor& directions, const AttentionOptions& options,
                            const MagicPigConfig& config, PairCounts* pairs = nullptr);

}  // namespace focus
