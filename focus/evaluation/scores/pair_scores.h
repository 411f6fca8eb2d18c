#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "focus/evaluation/attention_spec.h"
#include "focus/evaluation/evaluation.h"
#include "layers/logit_rows.h"

namespace focus {

using TokenIds = std::vector<std::int32_t>;

/// What is given, and what is scored after it.
struct TokenPair {
  TokenIds context, continuation;
  /// Tokens that go into the model: the last one is only predicted.
  Index fed() const { return static_cast<Index>(context.size() + continuation.size()) - 1; }
};

/// What a model says of a pair's continuation.
struct ScoredPair {
  std::vector<double> log_probs;  // of each token, in nats
  bool is_greedy = true;          // each token is the argmax

  double sum() const;
};

struct PairScoring {
  /// Whether no token's output depends on later ones: only then can sequences share what they have
  /// in common, or be padded to one length.
  bool causal = true;
};

/// Tokens that the pairs have, and those of them that went through the decoder.
struct ScoringWork {
  std::int64_t tokens = 0, computed = 0;
};

/// Scores pairs with the attention that the decoder has. Those that share a context, or begin
/// alike, share its computation (SharedPrefix); the same tokens before the last are computed once.
/// Throws std::runtime_error where a log-probability is not finite, naming the pair by its number.
std::vector<ScoredPair> score_pairs(Decoder& decoder, std::span<const TokenPair> pairs,
                                    const PairScoring& options, const ShareDone& progress = {},
                                    ScoringWork* work = nullptr);

/// The pairs that an attention may treat in another way than dense attention does: those further
/// apart than `window`; none where there is no window, as of dense attention itself.
struct TouchedPairs {
  std::optional<Index> window = {};
  std::vector<Index> window_of_layer = {};  // where layers differ; else empty

  /// The window is the local one of a Focus or of a mechanism that has one, and 0 of one without.
  static TouchedPairs of(const ActiveAttention& active);
  /// The causal pairs of a sequence over all layers, `distant` those that are touched.
  PairCounts count(const ModelConfig& config, Index tokens) const;
};

}  // namespace focus
