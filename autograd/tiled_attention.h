#pragma once

#include <memory>
#include <vector>

#include "autograd/ops.h"

// Causal attention in tiles of queries x keys, the engine of every attention op: nothing [seq_len,
// seq_len] is ever stored. Forward keeps a running row maximum and sum (Milakov, Gimelshein 2018;
// Dao et al. 2022); backward computes a tile's scores again from q, k and the log-sum-exps. Which
// tiles there are is an AttentionPlan, what a mechanism does to their scores a ScoreRule.
namespace focus {

/// Which pairs of tokens are attended: query tiles, each with the key tiles that it sees. The
/// plan's rows are the tokens of all sequences, in their order or in another that `tokens` says.
/// Within a tile the positions rise, so that what a row sees of a key tile is one run.
struct AttentionPlan {
  static constexpr Index kQueries = 96;  // rows of a query tile, a multiple of the micro-kernel's
  static constexpr Index kKeys = 256;    // rows of a key tile

  struct KeyTile {
    Index begin, end;  // rows
  };
  struct Segment {
    Index begin, end;  // key tiles
  };
  struct QueryTile {
    Index begin, end;                  // rows
    Index first_segment, end_segment;  // of `segments`
  };

  Index seq_len = 0;
  Index window = 0;  // positions that a token sees, itself included; 0: all before it
  std::vector<KeyTile> key_tiles;
  std::vector<Segment> segments;
  std::vector<QueryTile> query_tiles;  // heavy ones first, so that no thread ends with one alone
  /// Of each row the token [0, batch * seq_len); empty where rows are tokens in their order.
  std::vector<Index> tokens;

  Index token(Index row) const {
    return tokens.empty() ? row : tokens[static_cast<std::size_t>(row)];
  }
  Index position(Index row) const { return token(row) % seq_len; }
  /// Keys of a tile at positions below `position`.
  Index keys_before(const KeyTile& keys, Index position) const;
};

/// Every token in its order, the last `window` positions of it visible (0: all).
AttentionPlan causal_plan(Index batch, Index seq_len, Index window);

/// One pair of tiles, as a rule sees it.
struct AttentionTile {
  const AttentionPlan* plan = nullptr;
  Index begin = 0, end = 0;  // rows of queries
  AttentionPlan::KeyTile keys{0, 0};
  Index rows() const { return end - begin; }
  Index cols() const { return keys.end - keys.begin; }
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
    /// scores [cols] of one head and query row begin + row, in place, from column `first` on; -inf
    /// where the pair is not attended. The engine masks what the plan does not let the row see.
    virtual void apply(Index row, Index first, Real* scores) = 0;
    /// Turns d_scores, the gradient of the scores after apply, into that of the scores before it
    /// (`scores`), and gathers what the rule's own input is owed.
    virtual void backward(Index row, Index first, const Real* scores, Real* d_scores) = 0;
    /// After the last head's backward of a tile: adds to the gradient of the rule's input.
    virtual void finish(Real* rule_grad) = 0;
  };

  virtual ~ScoreRule() = default;
  virtual std::unique_ptr<Worker> worker() const = 0;
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
  Tensor lse;  // [batch, seq_len, heads]
};
struct AttentionGradients {
  Tensor q, k, v;
  Tensor rule;  // [rule->grad_size()]
};

/// Throws std::invalid_argument where q, k and v do not fit each other.
void check_attention_inputs(const AttentionInputs& inputs);
/// `onto`, where given, is the result over other pairs of the same rows: the plan's pairs are
/// merged with them exactly.
AttentionResult tiled_attention(const AttentionInputs& inputs, const AttentionPlan& plan,
                                const ScoreRule* rule, const AttentionResult* onto = nullptr);

struct WantedGradients {
  bool q = true, k = true, v = true;
};
/// Gradients of out through the plan's pairs, `result` being over all pairs that there are. Those
/// not wanted are left undefined and not computed.
AttentionGradients tiled_attention_backward(const AttentionInputs& inputs,
                                            const AttentionPlan& plan,
                                            const AttentionResult& result, const Tensor& d_out,
                                            const ScoreRule* rule, WantedGradients wanted);

/// [batch, seq_len, heads] -> [batch, heads, seq_len]: log-sum-exps as callers want them.
Tensor heads_first(const Tensor& lse);

/// The op around the engine. `rule_input` is the Variable that the rule was made from (its gradient
/// is the rule's, in its shape), or undefined.
Variable attention_with_rule(const char* op, const Variable& q, const Variable& k,
                             const Variable& v, const Variable& rule_input,
                             const AttentionOptions& options, std::shared_ptr<const ScoreRule> rule,
                             Tensor* lse);

}  // namespace focus
