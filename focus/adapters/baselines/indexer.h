#pragma once

#include <vector>

#include "autograd/ops.h"
#include "focus/adapters/baselines/selected_keys.h"

namespace focus {

struct IndexerConfig {
  Index tokens = 32;
  Index heads = 4;
  Index local_window = 32;
  Index sinks = 4;
  std::int64_t seed = 1;

  static constexpr Index kDim = 16;     // of an index vector
  static constexpr Index kRotated = 8;  // of these, where the model has rotary positions

  template <class F>
  void visit(F&& f) {
    f("tokens", tokens, "number of distant keys that a query reads", {0, 1 << 27});
    f("heads", heads, "heads of the indexer, each of width 16", {1, 64});
    f("local_window", local_window, "pairs with i - j <= local_window are always attended",
      {0, 1 << 27});
    f("sinks", sinks, "first tokens of a sequence (attention sinks), always attended",
      {0, 1 << 27});
    f("seed", seed, "seed of the initial weights of the indexer", {0, 1e18});
  }
  void validate() const;
};

/// What the indexer of a layer makes of its tokens.
struct IndexVectors {
  Variable q;  // [batch, seq_len, heads, 16]
  Variable k;  // [batch, seq_len, 1, 16]
  Variable w;  // [batch, seq_len, heads]
};

/// The keys that are read without asking the indexer.
inline LocalZone local_zone(const IndexerConfig& config) {
  return {.sinks = config.sinks, .local_window = config.local_window};
}

/// The mean over tokens of KL(p_i || softmax(I_i)) over the keys that token i sees, p_i being the
/// attention weights of q and k, summed over all heads and divided by their number, and
///   I_ij = sum over h of w_ih relu(q^I_ih . k^I_j).
/// Differentiable in the index vectors alone. -> [1]
Variable indexer_loss(const IndexVectors& index, const Tensor& q, const Tensor& k,
                      const AttentionOptions& options);

/// Attention to the distant keys of largest I, the same for all heads, the window and the sinks.
/// Shapes as attention(); not differentiable: throws where a gradient of q, k or v is wanted.
/// `pairs`, where given, receives what one head attended, added up over the sequences.
Variable indexer_attention(const Variable& q, const Variable& k, const Variable& v,
                           const IndexVectors& index, const AttentionOptions& options,
                           const IndexerConfig& config, PairCounts* pairs = nullptr);

}  // namespace focus
