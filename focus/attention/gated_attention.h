#pragma once

#include <cstdint>
#include <vector>

#include "autograd/ops.h"
#include "focus/config.h"

namespace focus {

/// How Focus changes the attention of one layer.
struct GateOptions {
  Gate gate = Gate::affinity;
  double steepness = 8;  // lambda, of the logit gate
  double affinity_floor = 1e-6;
  Index local_window = 128;  // w: pairs with i - j <= w are left alone
  /// False: distant pairs keep their score as it is (hard attention that drops the gate).
  bool gated = true;
  /// Hard attention: each token's set of groups [batch * seq_len]; a distant pair is attended only
  /// where the sets share a group. Empty: soft attention, every causal pair.
  std::vector<std::uint64_t> membership;

  static GateOptions from(const FocusConfig& config) {
    return {.gate = config.gate,
            .steepness = config.gate_steepness,
            .affinity_floor = config.affinity_floor,
            .local_window = config.local_window,
            .gated = true,
            .membership = {}};
  }
};

/// Soft attention: causal attention in which the scores of distant pairs pass the gate of
/// g_i . g_j, the same for all heads. Order on a score: scale, soft-cap, gate.
/// g [batch, seq_len, num_groups]; the rest as attention(). Differentiable in q, k, v and g. Throws
/// where the gate has membership sets: hard attention is sparse_attention's.
Variable gated_attention(const Variable& q, const Variable& k, const Variable& v, const Variable& g,
                         const AttentionOptions& options, const GateOptions& gate);

/// Pairs (i, j) of `sequences` causal sequences, within the layer's own sliding window.
struct PairCounts {
  std::int64_t all = 0;       // what dense attention attends
  std::int64_t distant = 0;   // those beyond the local window: what the gate touches
  std::int64_t attended = 0;  // what hard attention attends; equals `all` for soft
  PairCounts& operator+=(const PairCounts& other);
};
/// One sequence; `membership` [seq_len], or empty for soft attention. Exact, in time
/// O(seq_len * different sets).
PairCounts count_pairs(std::span<const std::uint64_t> membership, Index seq_len, Index local_window,
                       Index sliding_window);

}  // namespace focus
