#pragma once

#include "autograd/base/random.h"
#include "autograd/ops.h"

namespace focus {

/// Performer (Choromanski et al. 2021, arXiv 2009.14794).
struct PerformerConfig {
  int num_features = 256;  // m
  std::int64_t seed = 1;

  template <class F>
  void visit(F&& f) {
    f("num_features", num_features, "m, random features per head", {1, 1 << 16});
    f("seed", seed, "seed of the features, which are never trained or redrawn", {0, 1e18});
  }
  void validate() const;
};

/// Rows w_r of FAVOR+ [num_features, head_dim]: orthogonal within blocks of head_dim rows, each as
/// long as a normal vector is (section 2.4). Blocks are independent of each other.
Tensor orthogonal_features(Index num_features, Index head_dim, Rng& rng);

/// Causal attention by positive random features, FAVOR+ (their equations 5 and 7, algorithm 1):
///   out_i = sum_{j<=i} (phi(q_i) . phi(k_j)) v_j / sum_{j<=i} phi(q_i) . phi(k_j),
///   phi(x)_r = exp(w_r . x - |x|^2 / 2), x being q or k times sqrt(options.scale); 1/sqrt(m)
/// cancels. An estimate of softmax attention whose error falls with the number of features. Prefix
/// sums in chunks: time O(seq_len m head_dim), nothing [seq_len, seq_len].
/// Exponents are taken relative to the largest of their token for queries and keys, and to the
/// largest of the keys so far in the sums: all that cancels, and nothing of a later token enters a
/// bit of an earlier one (the authors' code takes the largest of all keys). Queries' features have
/// 1e-6 added, relative to their largest, so that no denominator is 0.
/// q, k, v as attention(), grouped queries included; features [m, head_dim] is a constant.
/// Differentiable in q, k and v. Throws where the options have a soft-cap or a sliding window, to
/// which features have no answer.
Variable performer_attention(const Variable& q, const Variable& k, const Variable& v,
                             const Tensor& features, const AttentionOptions& options);

}  // namespace focus
