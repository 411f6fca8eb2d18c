#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/base/random.h"
#include "autograd/ops.h"
#include "layers/model_config.h"
#include "layers/module.h"

// A decoder-only transformer: one block for every family, its optional parts undefined where the
// config leaves them out.
namespace focus {

/// What a forward pass is for. It is handed down the pass; no module keeps it.
struct ForwardContext {
  /// In training: the same key drops the same numbers. Null: nothing is dropped.
  std::optional<std::uint64_t> dropout_key = {};
  /// Share that is dropped of the embeddings, of attention's weights and of what attention and MLP
  /// add to the residual stream: GPT-2's embd_pdrop, attn_pdrop and resid_pdrop.
  double dropout = 0;
  /// Keeps of each layer only its input and computes the layer once more in the backward pass: less
  /// memory, the same bits. What a mechanism notes in a pass with a graph it notes then.
  bool recompute_layers = false;
  /// Where the ids are one row of several documents: AttentionOptions::documents. Positions begin
  /// in each at `first_positions`, or at 0 where these are empty.
  std::shared_ptr<const std::vector<Index>> documents = {};
  std::vector<Index> first_positions = {};
};

/// A linear's input [..., in] -> what is added to its output [..., out], such as LoRA; an empty one
/// adds nothing.
using LinearAddition = std::function<Variable(const Variable&, const ForwardContext&)>;

struct Linear {
  Weight weight;  // [out, in]
  Variable bias;  // [out]; undefined where the architecture has none
  LinearAddition addition = {};
  LinearInput::Part part() const { return {weight, bias}; }
  Variable operator()(const LinearInput& x, const ForwardContext& context = {}) const {
    const Variable y = linear(x, weight, bias);
    return addition ? add(y, addition(x.x(), context)) : y;
  }
  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }
};

struct Norm {
  Variable weight;  // [width]; undefined where the architecture has no norm here: x as it is
  Variable bias;    // [width]; undefined for RMSNorm
  NormKind kind = NormKind::rms_norm;
  Real eps = Real(1e-5);
  Real weight_offset = 0;
  /// x [..., width] -> like x
  Variable operator()(const Variable& x) const {
    if (!weight.defined()) return x;
    const Variable w = weight_offset == 0 ? weight : shift(weight, weight_offset);
    return kind == NormKind::layer_norm ? layer_norm(x, w, bias, eps) : rms_norm(x, w, eps);
  }
  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }
};

/// What an attention layer hands to its mechanism, norms, biases and rotary applied.
struct MechanismInputs {
  const Variable& h;  // [batch, seq_len, hidden_size]: what q, k and v were projected from
  const Variable& q;  // [batch, seq_len, num_heads, head_dim]
  const Variable& k;  // [batch, seq_len, num_kv_heads, head_dim]
  const Variable& v;  // like k
  const AttentionOptions& options;  // scale, soft-cap, the layer's sliding window, documents
  Index layer = 0;
  /// The first of h, with documents the highest of theirs; earlier calls had the tokens before.
  Index first_position = 0;
};
/// Returns the output before o_proj, shaped like q. An empty one is dense causal attention.
using AttentionMechanism = std::function<Variable(const MechanismInputs&)>;

struct Attention {
  Linear q_proj, k_proj, v_proj, o_proj;
  Norm q_norm, k_norm;  // of head_dim, or of all heads' width
  AttentionMechanism mechanism;
  void visit(auto&& f) {
    f("q_proj", q_proj);
    f("k_proj", k_proj);
    f("v_proj", v_proj);
    f("o_proj", o_proj);
    f("q_norm", q_norm);
    f("k_norm", k_norm);
  }
};

struct Mlp {
  Linear gate_proj;  // undefined where the MLP is not gated
  Linear up_proj, down_proj;
  void visit(auto&& f) {
    f("gate_proj", gate_proj);
    f("up_proj", up_proj);
    f("down_proj", down_proj);
  }
};

struct Block {
  Norm input_layernorm, post_attention_layernorm;  // before attention, before the MLP
  Norm attention_out_norm, mlp_out_norm;           // after each, before the residual sum
  Attention self_attn;
  Mlp mlp;
  void visit(auto&& f) {
    f("input_layernorm", input_layernorm);
    f("self_attn", self_attn);
    f("post_attention_layernorm", post_attention_layernorm);
    f("mlp", mlp);
    f("attention_out_norm", attention_out_norm);
    f("mlp_out_norm", mlp_out_norm);
  }
};

/// Angles of `config` for positions 0..seq_len-1 of a pass that ends with the last of them.
RotaryTable rotary_table(const RopeConfig& config, Index rotary_dim, Index seq_len);

/// The rotary table of a decoder, made as far as sequences have asked for it. Threads may ask at
/// once; a table that was given out stays as it is.
class RotaryCache {
 public:
  /// A table of at least `positions` for a pass that ends with the last of them. The rows of
  /// positions are the same however many there are, unless `config` depends on the length.
  RotaryTable covering(Index positions, const RopeConfig& config, Index rotary_dim, Index most);

 private:
  std::mutex mutex_;
  RotaryTable table_;
  Index length_class_ = 0;  // of the table
};

class Decoder {
 public:
  /// All parameters undefined in value; load_weights or initialise fills them. Matrices take no
  /// memory until then.
  explicit Decoder(ModelConfig config);

  const ModelConfig& config() const { return config_; }
  std::vector<Block>& layers() { return layers_; }

  /// ids: `batch` sequences of equal length, one after the other -> the last norm's output, divided
  /// by logits_scaling [batch, seq_len, hidden_size]. Throws where a sequence is longer than
  /// max_position_embeddings (learned positions) or an id is not below vocab_size. From a
  /// first_position other than 0, every layer's mechanism must hold what it needs of the tokens
  /// before.
  Variable hidden_states(std::span<const std::int32_t> ids, Index batch, Index first_position = 0,
                         const ForwardContext& context = {}) const;
  /// [..., hidden_size] -> [..., vocab_size]
  Variable logits(const Variable& hidden) const {
    return soft_cap(linear(hidden, head_weight(), {}), final_softcap());
  }
  /// Mean cross-entropy of each token but the first of its sequence, in nats: [1]. What
  /// transformers returns for labels = input_ids.
  Variable loss(std::span<const std::int32_t> ids, Index batch,
                const ForwardContext& context = {}) const;
  /// The same of rows that hidden_states() has computed, one target per row; those below 0 do not
  /// count. hidden [..., hidden_size] -> [1]
  Variable cross_entropy(const Variable& hidden, std::span<const std::int32_t> targets) const {
    return linear_cross_entropy(hidden, head_weight(), targets, final_softcap());
  }
  /// The sum of the rows' losses, each times a weight.
  Variable cross_entropy(const Variable& hidden, std::span<const std::int32_t> targets,
                         std::span<const Real> weights) const {
    return weighted_cross_entropy(hidden, head_weight(), targets, weights, final_softcap());
  }
  /// The loss of each row, without a graph; 0 where the target is below 0.
  std::vector<double> cross_entropy_rows(const Tensor& hidden,
                                         std::span<const std::int32_t> targets) const {
    return linear_cross_entropy_rows(hidden, head_weight(), targets, final_softcap());
  }
  /// KL(reference || hidden) of each row's predictions, without a graph; both [rows, hidden_size].
  std::vector<double> kl_divergence_rows(const Tensor& hidden, const Tensor& reference) const {
    return linear_kl_divergence_rows(hidden, reference, head_weight(), final_softcap());
  }
  /// Its mean, differentiable in `hidden`: [1]. The reference is of `teacher`, whose head predicts
  /// from it; null: of this decoder, whose head is a constant then.
  Variable kl_divergence(const Variable& hidden, const Tensor& reference,
                         const Decoder* teacher = nullptr) const {
    return linear_kl_divergence(hidden, reference, head_weight(), final_softcap(),
                                teacher != nullptr ? &teacher->head_weight() : nullptr);
  }
  /// The output head's weight: lm_head's, or the embedding's where they are tied.
  const Weight& head_weight() const {
    return lm_head_.weight.defined() ? lm_head_.weight : embed_tokens_.weight;
  }

  /// From now on the next layer's frozen matrices are read ahead while a layer computes: for a base
  /// that is larger than the memory. The same bits. Its weights must not change any more.
  void read_ahead();

  void visit(auto&& f) {
    f("embed_tokens", embed_tokens_);
    f("embed_positions", embed_positions_);
    f("layers", layers_);
    f("norm", norm_);
    f("lm_head", lm_head_);
  }

 private:
  /// A forward pass, and where in the sequences it is.
  struct Pass {
    Index first_position;
    RotaryTable rotary;        // undefined where positions are learned
    RotaryTable local_rotary;  // of layers with a window, where the config has one of their own
    ForwardContext context;
  };
  Variable layer(std::size_t i, const Variable& x, const Pass& pass) const;
  void will_need(std::size_t layer) const;
  Variable attend(const Block& block, const Variable& x, Index layer, const Pass& pass) const;
  /// The embeddings of the ids, with those of their positions where these are learned.
  Variable embedded(std::span<const std::int32_t> ids, Index batch,
                    std::span<const std::int32_t> positions) const;
  Variable feed_forward(const Mlp& mlp, const Variable& x, const ForwardContext& context) const;
  /// What a sub-layer adds to the residual stream, after its norm and multiplier.
  Variable residual(const Norm& norm, const Variable& x, std::size_t place,
                    const ForwardContext& context) const;
  /// x, some of it dropped in training; `place` tells apart where in the pass.
  Variable drop(const Variable& x, std::size_t place, const ForwardContext& context) const;
  std::uint64_t key_of(std::uint64_t pass_key, std::size_t place) const;
  Real final_softcap() const { return static_cast<Real>(config_.final_logit_softcapping); }

  ModelConfig config_;
  Linear embed_tokens_;     // weight [vocab_size, hidden_size]
  Linear embed_positions_;  // weight [max_position_embeddings, hidden_size], or undefined
  std::vector<Block> layers_;
  Norm norm_;
  Linear lm_head_;                                // undefined where tied
  std::vector<std::vector<FrozenMatrix>> ahead_;  // of each layer, and of the head; or none
  std::shared_ptr<RotaryCache> rotary_ = std::make_shared<RotaryCache>();
  std::shared_ptr<RotaryCache> local_rotary_ = std::make_shared<RotaryCache>();
};

/// While it lives every layer of `decoder` attends by `mechanism`; then each has its previous one
/// again. Nested ones end in reverse order.
class AttachedMechanism {
 public:
  AttachedMechanism(Decoder& decoder, const AttentionMechanism& mechanism);
  ~AttachedMechanism();
  AttachedMechanism(AttachedMechanism&& other) noexcept
      : decoder_(std::exchange(other.decoder_, nullptr)), before_(std::move(other.before_)) {}
  AttachedMechanism& operator=(AttachedMechanism&&) = delete;

 private:
  Decoder* decoder_;
  std::vector<AttentionMechanism> before_;  // of each layer
};

/// Targets of next-token prediction: ids shifted by one inside each sequence, -1 at its end.
std::vector<std::int32_t> shifted_targets(std::span<const std::int32_t> ids, Index batch);

/// GPT-2's initialisation: normal(0, initializer_range), the projections into the residual stream
/// divided by sqrt(2 num_hidden_layers), biases 0, norms so that they multiply by 1.
void initialise(Decoder& decoder, Rng& rng);

}  // namespace focus
