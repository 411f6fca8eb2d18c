#pragma once

#include <memory>
#include <optional>

#include "autograd/attention/attention_plan.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"

// Causal attention in tiles of queries x keys, the engine of every attention op: nothing [seq_len,
// seq_len] is ever stored. Forward keeps a running row maximum and sum (Milakov, Gimelshein 2018;
// Dao et al. 2022); backward computes a tile's scores again from q, k and the log-sum-exps. Which
// tiles there are is an AttentionPlan, what a mechanism does to their scores a ScoreRule.
namespace focus {

/// Changes the finished scores (scaled, soft-capped) of a tile before the softmax. One gate serves
/// all heads of a layer: a tile's is computed once and used for each head.
class ScoreRule {
 public:
  /// One thread's work: goes from tile to tile and keeps its buffers.
  class Worker {
   public:
    virtual ~Worker() = default;
    /// The tile's gate [cols, AttentionPlan::kQueries], one number for each key and query; null
    /// where it would change nothing. Valid until the next call.
    virtual const Real* gate(const AttentionTile& tile) = 0;
    /// After the last head of the tile that gate() was called for last: d_gate is the gate's
    /// gradient (overwritten); adds what the rule's own input is owed to rule_grad.
    virtual void backward(Real* d_gate, Real* rule_grad) = 0;
  };

  virtual ~ScoreRule() = default;
  virtual std::unique_ptr<Worker> worker() const = 0;
  /// What the gate multiplies.
  virtual simd::GateUse gate_use() const = 0;
  /// Size of the gradient of the rule's own input, 0 where none is wanted.
  virtual Index grad_size() const { return 0; }
};

struct AttentionInputs {
  Tensor q;                  // [batch, seq_len, heads, head_dim]
  Tensor k;                  // [batch, seq_len, kv_heads, head_dim]
  Tensor v;                  // like k
  AttentionOptions options;  // its sliding window is the plan's affair
};
struct AttentionResult {
  Tensor out;  // like q
  Tensor lse;  // [batch, heads, seq_len]: log-sum-exp of each row's scores
};
struct AttentionGradients {
  Tensor q, k, v;
  Tensor rule;  // [rule->grad_size()]
};

/// Throws std::invalid_argument where q, k and v do not fit each other.
void check_attention_inputs(const AttentionInputs& inputs);
AttentionResult tiled_attention(const AttentionInputs& inputs, const AttentionPlan& plan,
                                const ScoreRule* rule);

/// Some of the key heads, with the query heads that share them; or of one key head a single query
/// head, counted among those of all.
struct HeadRange {
  Index first, count;
  Index query_head = -1;  // -1: all that share
};
/// The same for some heads, into `result`. Into::add: `result` is that over other pairs of the same
/// rows, with which the plan's pairs are merged, exactly.
void tiled_attention(const AttentionInputs& inputs, const AttentionPlan& plan,
                     const ScoreRule* rule, Into into, HeadRange heads, AttentionResult& result);

struct WantedGradients {
  bool q = true, k = true, v = true;
  bool any() const { return q || k || v; }
};
/// Gradients of out through the plan's pairs, `result` being over all pairs that there are. Those
/// not wanted stay undefined and are not computed. `onto`, where defined, are the gradients through
/// other pairs, and are added to in place. With `heads` only those: `onto` must hold what is
/// wanted.
AttentionGradients tiled_attention_backward(const AttentionInputs& inputs,
                                            const AttentionPlan& plan,
                                            const AttentionResult& result, const Tensor& d_out,
                                            const ScoreRule* rule, WantedGradients wanted,
                                            const AttentionGradients& onto = {},
                                            std::optional<HeadRange> heads = {});

/// The op around the engine. `rule_input` is the Variable that the rule was made from (its gradient
/// is the rule's, in its shape), or undefined.
Variable attention_with_rule(const char* op, const Variable& q, const Variable& k,
                             const Variable& v, const Variable& rule_input,
                             const AttentionOptions& options,
                             std::shared_ptr<const ScoreRule> rule);

}  // namespace focus
