#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/variable.h"

namespace focus {

/// The group of each token of one key head, which lie `stride` apart.
struct GroupIdView {
  const std::uint8_t* data = nullptr;
  Index stride = 1;
  std::uint8_t operator[](Index token) const { return data[token * stride]; }
};

/// Which group each key is in. Tokens of a key head, or of a whole layer, have one group each.
struct GroupIds {
  Index groups = 0;               // K
  Index heads = 1;                // key heads that have groups of their own; 1: one for all
  std::vector<std::uint8_t> ids;  // [batch, seq_len, heads]
  /// Each token's share in each group [batch, seq_len, heads, groups], of which its group has the
  /// largest. Forward takes the group; the gradient goes straight through to the shares.
  /// Undefined: the groups are constants.
  Variable shares = {};
};

/// The group of each token: its largest score, the first of equals; where z wants a gradient the
/// shares are softmax(z / tau).  z [batch, seq_len, heads, groups]. Throws std::invalid_argument
/// for more than kMaxKeyGroups groups.
GroupIds group_ids_of(const Variable& z, double tau);

/// z_jc = k_j . C_c - |C_c|^2 / 2 + b_c: largest for the centroid nearest to the key, where b = 0.
/// k [batch, seq_len, kv_heads, head_dim], centroids [kv_heads, groups, head_dim], bias [kv_heads,
/// groups] -> [batch, seq_len, kv_heads, groups]. Differentiable in all three.
Variable group_scores(const Variable& k, const Variable& centroids, const Variable& bias);

/// The place of the largest of n finite numbers, n > 0, the first of equals.
Index first_largest(const Real* x, Index n);

/// The keys of one head, `stride` numbers from one to the next.
struct HeadKeys {
  const Real* data;
  Index stride, dim;
  const Real* key(Index t) const { return data + t * stride; }
};
/// b_c - |C_c|^2 / 2 for each row of centroids [any, dim]; `bias` null: 0.
std::vector<Real> group_constants(std::span<const Real> centroids, const Real* bias, Index dim);
/// z of the keys [first, first + count) of one head, rows of `ldz` numbers, on the calling thread;
/// centroids [groups, dim] with their constants.
void head_group_scores(const HeadKeys& keys, Index first, Index count, const Real* centroids,
                       std::span<const Real> constants, Real* z, Index ldz);

/// group_ids_of(group_scores()), without the scores: in less memory, and for no gradient. Empty
/// constants are worked out.
GroupIds nearest_groups(const Tensor& k, const Tensor& centroids, const Tensor& bias,
                        std::span<const Real> constants = {});

}  // namespace focus
