#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "autograd/attention/tiled_attention.h"
#include "autograd/simd/kernels.h"
#include "focus/method/config.h"

namespace focus {

/// How Focus changes the attention of one layer.
struct GateOptions {
  Gate gate = Gate::affinity;
  double steepness = 8;  // lambda, of the logit gate
  double affinity_floor = 1e-6;
  Index local_window = 128;  // w: pairs with i - j <= w are left alone
  Index sinks = 0;           // so are pairs whose key is among a sequence's first tokens
  /// False: distant pairs keep their score as it is (hard attention that drops the gate).
  bool gated = true;
  /// Hard attention: each token's mask of groups [batch * seq_len]; a distant pair is attended only
  /// where the masks share a group. Empty: soft attention, every causal pair.
  std::vector<std::uint64_t> membership = {};

  static GateOptions from(const FocusConfig& config) {
    const TokenSettings& tokens = config.tokens();
    return {.gate = tokens.gate,
            .steepness = tokens.gate_steepness,
            .affinity_floor = tokens.affinity_floor,
            .local_window = config.local_window,
            .sinks = tokens.sinks};
  }
};

/// What the gate makes of a distant pair's affinity A = g_i . g_j, one number for all heads:
///   logit     1 / (1 + e^(-lambda A)), which multiplies the score
///   affinity  A + floor, which multiplies the weight e^score: the same as log(A + floor) added to
///             the score, without the logarithm and, on the way back, a division
class GateFactor {
 public:
  explicit GateFactor(const GateOptions& options);
  simd::GateUse use() const { return use_; }
  /// What the products g_i . g_j are added to: the floor, so that it takes no pass of its own.
  Real start() const { return start_; }
  /// From affinities, begun at start(), to factors over n numbers (a multiple of the vector's
  /// width), in place.
  void finish(Real* affinities, Index n) const;
  /// From the gradient of the factors to that of the affinities, in place.
  void backward(const Real* factors, Real* gradient, Index n) const;

 private:
  simd::GateUse use_;
  Real start_, steepness_;
};

/// The gate of g_i . g_j on distant pairs.  g [rows, num_groups] in the order of the plan's rows.
/// Where `gate` has membership masks, distant pairs that share no group are masked: for the logit
/// gate, which multiplies the scores, that is not possible while it is kept.  g's shape is
/// [batch, seq_len, num_groups]; `documents` as in sequence_starts().
std::unique_ptr<ScoreRule> focus_rule(Tensor g, const GateOptions& gate, bool grad_wanted,
                                      std::span<const Index> documents = {});

}  // namespace focus
