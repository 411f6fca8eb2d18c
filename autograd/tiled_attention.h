#pragma once

#include <memory>

#include "autograd/ops.h"

// Causal attention in tiles of queries x keys, the engine of every attention op: nothing [seq_len,
// seq_len] is ever stored. Forward keeps a running row maximum and sum (Milakov, Gimelshein 2018;
// Dao et al. 2022); backward computes a tile's scores again from q, k and the log-sum-exps. What a
// mechanism does to scores is a ScoreRule.
namespace focus {

/// Queries [begin, end) of one sequence against keys [first_key, end_key).
struct AttentionTile {
  Index batch = 0;
  Index begin = 0, end = 0;
  Index first_key = 0, end_key = 0;
  Index rows() const { return end - begin; }
  Index cols() const { return end_key - first_key; }
};

/// Changes the finished scores (scaled, soft-capped) of a tile before the softmax: a gate, a mask.
/// One rule serves all heads of a layer: what a tile of pairs needs is computed once and used for
/// each head.
class ScoreRule {
 public:
  /// One thread's work: goes from tile to tile and keeps its buffers.
  class Worker {
   public:
    virtual ~Worker() = default;
    virtual void begin(const AttentionTile& tile) = 0;
    /// scores [cols] of one head and query begin + row, in place; -inf where the pair is not
    /// attended. The engine masks what is not causal or outside the sliding window itself.
    virtual void apply(Index row, Real* scores) = 0;
    /// Turns d_scores, the gradient of the scores after apply, into that of the scores before it
    /// (`scores`), and gathers what the rule's own input is owed.
    virtual void backward(Index row, const Real* scores, Real* d_scores) = 0;
    /// After the last head's backward of a tile: adds to the gradient of the rule's input.
    virtual void finish(Real* rule_grad) = 0;
  };

  virtual ~ScoreRule() = default;
  virtual std::unique_ptr<Worker> worker() const = 0;
  /// Size of the gradient of the rule's own input, 0 where none is wanted.
  virtual Index grad_size() const { return 0; }
};

struct AttentionInputs {
  Tensor q;  // [batch, seq_len, heads, head_dim]
  Tensor k;  // [batch, seq_len, kv_heads, head_dim]
  Tensor v;  // like k
  AttentionOptions options;
};
struct AttentionResult {
  Tensor out;  // like q
  Tensor lse;  // [batch, heads, seq_len]
};
struct AttentionGradients {
  Tensor q, k, v;
  Tensor rule;  // [rule->grad_size()]
};

/// Throws std::invalid_argument where q, k and v do not fit each other.
void check_attention_inputs(const AttentionInputs& inputs);
AttentionResult tiled_attention(const AttentionInputs& inputs, const ScoreRule* rule);

struct WantedGradients {
  bool q = true, k = true, v = true;
};
/// Gradients of out; those not wanted are left undefined and not computed.
AttentionGradients tiled_attention_backward(const AttentionInputs& inputs,
                                            const AttentionResult& result, const Tensor& d_out,
                                            const ScoreRule* rule, WantedGradients wanted);

/// The op around the engine. `rule_input` is the Variable that the rule was made from (its gradient
/// is the rule's, in its shape), or undefined.
Variable attention_with_rule(const char* op, const Variable& q, const Variable& k,
                             const Variable& v, const Variable& rule_input,
                             const AttentionOptions& options, std::shared_ptr<const ScoreRule> rule,
                             Tensor* lse);

}  // namespace focus
