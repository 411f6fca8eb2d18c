#include "layers/decoder.h"

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"
#include "autograd/simd/bf16_kernels.h"

namespace focus {
namespace {

Linear make_linear(Index out, Index in, bool bias) {
  return {Weight(Shape{out, in}), bias ? Variable(Tensor(Shape{out})) : Variable()};
}

Norm make_norm(const ModelConfig& c, Index width) {
  return {Tensor({width}), c.norm == NormKind::layer_norm ? Variable(Tensor({width})) : Variable(),
          c.norm, static_cast<Real>(c.norm_eps), static_cast<Real>(c.norm_weight_offset)};
}

Norm make_qk_norm(const ModelConfig& c, Index heads) {
  if (c.qk_norm == QkNorm::none) return {};
  return make_norm(c, c.qk_norm == QkNorm::per_head ? c.head_dim : heads * c.head_dim);
}

Block make_block(const ModelConfig& c) {
  const Index width = c.hidden_size, inner = c.intermediate_size;
  const Index q_width = c.num_attention_heads * c.head_dim;
  const Index kv_width = c.num_key_value_heads * c.head_dim;
  const auto norm = [&](bool present) { return present ? make_norm(c, width) : Norm{}; };
  return {norm(c.norm_before),
          norm(c.norm_before),
          norm(c.norm_after),
          norm(c.norm_after),
          Attention{make_linear(q_width, width, c.attention_bias),
                    make_linear(kv_width, width, c.attention_bias),
                    make_linear(kv_width, width, c.attention_bias),
                    make_linear(width, q_width, c.attention_out_bias),
                    make_qk_norm(c, c.num_attention_heads),
                    make_qk_norm(c, c.num_key_value_heads),
                    {}},
          Mlp{c.gated_mlp ? make_linear(inner, width, c.mlp_bias) : Linear{},
              make_linear(inner, width, c.mlp_bias), make_linear(width, inner, c.mlp_bias)}};
}

/// q or k [batch, seq_len, heads * head_dim] -> [batch, seq_len, heads, head_dim], through its
/// norm.
Variable in_heads(const Variable& x, const Norm& norm, QkNorm kind, const Shape& shape) {
  return kind == QkNorm::full_width ? reshape(norm(x), shape) : norm(reshape(x, shape));
}

/// Positions up to the last of these.
Index end_of(std::span<const std::int32_t> positions) {
  return 1 + *std::ranges::max_element(positions);
}

/// Each id's position in its row, or in its document of the one row.
std::vector<std::int32_t> positions_of(Index ids, Index batch, Index first_position,
                                       const ForwardContext& context) {
  std::vector<std::int32_t> positions(ids);
  const Index seq_len = ids / batch;
  const std::vector<Index>* const documents = context.documents.get();
  std::size_t document = 0;
  for (Index t = 0; t < ids; ++t) {
    Index position = first_position + t % seq_len;
    if (documents != nullptr) {
      while (t >= (*documents)[document + 1]) ++document;
      position = t - (*documents)[document];
      if (!context.first_positions.empty()) position += context.first_positions[document];
    }
    positions[t] = static_cast<std::int32_t>(position);
  }
  return positions;
}

/// The table's rows of these positions.
RotaryTable rows_of(const RotaryTable& table, std::span<const std::int32_t> positions) {
  const Index half = table.cos.dim(1), count = static_cast<Index>(positions.size());
  RotaryTable rows{Tensor({count, half}), Tensor({count, half})};
  for (Index t = 0; t < count; ++t) {
    const Index from = positions[t] * half;
    std::copy_n(table.cos.data() + from, half, rows.cos.data() + t * half);
    std::copy_n(table.sin.data() + from, half, rows.sin.data() + t * half);
  }
  return rows;
}

}  // namespace

Decoder::Decoder(ModelConfig config) : config_(std::move(config)) {
  config_.validate("model");
  embed_tokens_.weight = Weight(Shape{config_.vocab_size, config_.hidden_size});
  if (config_.learned_positions)
    embed_positions_.weight = Weight(Shape{config_.max_position_embeddings, config_.hidden_size});
  for (Index i = 0; i < config_.num_hidden_layers; ++i) layers_.push_back(make_block(config_));
  norm_ = make_norm(config_, config_.hidden_size);
  if (!config_.tie_word_embeddings)
    lm_head_.weight = Weight(Shape{config_.vocab_size, config_.hidden_size});
}

Variable Decoder::attend(const Block& block, const Variable& x, Index layer,
                         const Pass& pass) const {
  const Attention& attn = block.self_attn;
  const Variable h = block.input_layernorm(x);
  const LinearInput rows(h, std::array{attn.q_proj.part(), attn.k_proj.part(), attn.v_proj.part()});
  const Shape q_shape{x.dim(0), x.dim(1), config_.num_attention_heads, config_.head_dim};
  const Shape kv_shape = q_shape.with(2, config_.num_key_value_heads);
  Variable q = in_heads(attn.q_proj(rows, pass.context), attn.q_norm, config_.qk_norm, q_shape);
  Variable k = in_heads(attn.k_proj(rows, pass.context), attn.k_norm, config_.qk_norm, kv_shape);
  const Variable v = reshape(attn.v_proj(rows, pass.context), kv_shape);
  if (config_.is_rotary(layer)) {
    const RotaryTable& table = config_.is_local_rope(layer) ? pass.local_rotary : pass.rotary;
    const Index row = pass.context.documents ? 0 : pass.first_position;  // of the table
    q = rope(q, table, row);
    k = rope(k, table, row);
  }
  AttentionOptions options{.scale = static_cast<Real>(config_.attention_scale()),
                           .softcap = static_cast<Real>(config_.attn_logit_softcapping),
                           .sliding_window = config_.sliding_window(layer),
                           .documents = pass.context.documents};
  // Attention goes with the products around it.
  if (attn.q_proj.weight.precision() == Precision::bf16) options.bf16 = simd::fast_bf16_kernels();
  if (const auto& key = pass.context.dropout_key) {
    options.dropout = pass.context.dropout;
    options.dropout_key = key_of(*key, 3 + 3 * static_cast<std::size_t>(layer));
  }
  check(attn.mechanism || pass.first_position == 0,
        "decoder: layer {} has no cache of the {} tokens before", layer, pass.first_position);
  const Variable out = attn.mechanism
                           ? attn.mechanism({h, q, k, v, options, layer, pass.first_position})
                           : attention(q, k, v, options);
  return attn.o_proj(
      reshape(out, {x.dim(0), x.dim(1), config_.num_attention_heads * config_.head_dim}),
      pass.context);
}

Variable Decoder::feed_forward(const Mlp& mlp, const Variable& x,
                               const ForwardContext& context) const {
  const LinearInput rows =
      config_.gated_mlp ? LinearInput(x, std::array{mlp.gate_proj.part(), mlp.up_proj.part()})
                        : LinearInput(x);
  const Variable up = mlp.up_proj(rows, context);
  const auto activated = [&](const Variable& z) {
    switch (config_.activation) {
      case Activation::gelu:
        return gelu(z);
      case Activation::gelu_tanh:
        return gelu_tanh(z);
      case Activation::silu:
        return silu(z);
    }
    return z;
  };
  if (!config_.gated_mlp) return mlp.down_proj(activated(up), context);
  const Variable gate = mlp.gate_proj(rows, context);
  return mlp.down_proj(
      config_.activation == Activation::silu ? swiglu(gate, up) : multiply(activated(gate), up),
      context);
}

Variable Decoder::residual(const Norm& norm, const Variable& x, std::size_t place,
                           const ForwardContext& context) const {
  Variable added = drop(norm(x), place, context);
  if (config_.residual_multiplier == 1) return added;
  return scale(added, static_cast<Real>(config_.residual_multiplier));
}

Variable Decoder::drop(const Variable& x, std::size_t place, const ForwardContext& context) const {
  if (!context.dropout_key) return x;
  return dropout(x, context.dropout, key_of(*context.dropout_key, place));
}

std::uint64_t Decoder::key_of(std::uint64_t pass_key, std::size_t place) const {
  return pass_key * (1 + 3 * layers_.size()) + place;
}

RotaryTable RotaryCache::covering(Index positions, const RopeConfig& config, Index rotary_dim,
                                  Index most) {
  const std::lock_guard lock(mutex_);
  const Index length_class = config.length_class(positions);
  Index have = table_.cos.defined() ? table_.cos.dim(0) : 0;
  if (length_class != length_class_) have = 0;
  if (have < positions) {
    // At least doubled: generation asks for one position more with every token.
    Index rows = std::max(positions, std::min(2 * have, most));
    if (config.length_class(rows) != length_class) rows = positions;
    table_ = rotary_table(config, rotary_dim, rows);
    length_class_ = length_class;
  }
  return table_;
}

Variable Decoder::embedded(std::span<const std::int32_t> ids, Index batch,
                           std::span<const std::int32_t> positions) const {
  const Index seq_len = static_cast<Index>(ids.size()) / batch;
  Variable x = embedding(embed_tokens_.weight, ids, {batch, seq_len});
  if (config_.scaled_embeddings)
    x = scale(x, static_cast<Real>(std::sqrt(static_cast<double>(config_.hidden_size))));
  if (config_.embedding_multiplier != 1)
    x = scale(x, static_cast<Real>(config_.embedding_multiplier));
  if (!config_.learned_positions) return x;
  const Index end = end_of(positions);
  check(end <= config_.max_position_embeddings,
        "decoder: {} tokens in a sequence, but the model has {} positions", end,
        config_.max_position_embeddings);
  return add(x, embedding(embed_positions_.weight, positions, {batch, seq_len}));
}

Variable Decoder::hidden_states(std::span<const std::int32_t> ids, Index batch,
                                Index first_position, const ForwardContext& context) const {
  check(batch > 0 && !ids.empty() && static_cast<Index>(ids.size()) % batch == 0,
        "decoder: {} ids are not {} sequences of equal length", ids.size(), batch);
  check(first_position >= 0, "decoder: first position {} is not valid", first_position);
  const auto count = static_cast<Index>(ids.size());
  const std::vector<Index>* const documents = context.documents.get();
  check(documents == nullptr || (batch == 1 && first_position == 0 && documents->size() >= 2 &&
                                 documents->front() == 0 && documents->back() == count &&
                                 std::ranges::is_sorted(*documents, std::less_equal())),
        "decoder: document offsets must increase from 0 to the {} ids of one row", ids.size());
  const std::vector<Index>& firsts = context.first_positions;
  if (!firsts.empty()) {
    check(documents != nullptr && firsts.size() + 1 == documents->size() &&
              *std::ranges::min_element(firsts) >= 0,
          "decoder: {} first positions do not fit the documents", firsts.size());
    first_position = *std::ranges::max_element(firsts);
  }
  const std::vector<std::int32_t> positions = positions_of(count, batch, first_position, context);
  Variable x = embedded(ids, batch, positions);
  Pass pass{.first_position = first_position, .rotary = {}, .local_rotary = {}, .context = context};
  const auto covering = [&](RotaryCache& cache, const RopeConfig& of) {
    const RotaryTable table = cache.covering(end_of(positions), of, config_.rotary_dim(),
                                             config_.max_position_embeddings);
    return documents != nullptr ? rows_of(table, positions) : table;
  };
  if (!config_.learned_positions) pass.rotary = covering(*rotary_, config_.rope);
  if (config_.local_rope) pass.local_rotary = covering(*local_rotary_, *config_.local_rope);
  x = drop(x, 0, context);
  will_need(0);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    will_need(i + 1);
    if (context.recompute_layers)
      x = recompute([this, i, pass](const Variable& in) { return layer(i, in, pass); }, x);
    else
      x = layer(i, x, pass);
    if (!ahead_.empty() && i > 0) x = during_backward(x, [this, i] { will_need(i - 1); });
  }
  x = norm_(x);
  // Here instead of behind the head: every figure that is made of rows gets it.
  return config_.logits_scaling == 1 ? x : scale(x, static_cast<Real>(1 / config_.logits_scaling));
}

void Decoder::read_ahead() {
  ahead_.clear();
  const auto of = [this](auto& module) {
    std::vector<FrozenMatrix>& matrices = ahead_.emplace_back();
    for_each_parameter(module, [&](const std::string&, const Weight& p) {
      if (p.is_frozen_matrix()) matrices.push_back(p.frozen_matrix());
    });
  };
  for (Block& block : layers_) of(block);
  of(lm_head_.weight.defined() ? lm_head_ : embed_tokens_);
}

void Decoder::will_need(std::size_t layer) const {
  if (layer >= ahead_.size()) return;
  for (const FrozenMatrix& matrix : ahead_[layer]) matrix->read_ahead();
}

Variable Decoder::layer(std::size_t i, const Variable& in, const Pass& pass) const {
  const Block& block = layers_[i];
  const Variable attended = attend(block, in, static_cast<Index>(i), pass);
  const Variable x = add(in, residual(block.attention_out_norm, attended, 1 + 3 * i, pass.context));
  const Variable h = block.post_attention_layernorm(config_.parallel_residual ? in : x);
  const Variable fed = feed_forward(block.mlp, h, pass.context);
  return add(x, residual(block.mlp_out_norm, fed, 2 + 3 * i, pass.context));
}

Variable Decoder::loss(std::span<const std::int32_t> ids, Index batch,
                       const ForwardContext& context) const {
  return cross_entropy(hidden_states(ids, batch, 0, context), shifted_targets(ids, batch));
}

AttachedMechanism::AttachedMechanism(Decoder& decoder, const AttentionMechanism& mechanism)
    : decoder_(&decoder) {
  for (Block& block : decoder.layers())
    before_.push_back(std::exchange(block.self_attn.mechanism, mechanism));
}

AttachedMechanism::~AttachedMechanism() {
  if (decoder_ == nullptr) return;
  for (std::size_t i = 0; i < before_.size(); ++i)
    decoder_->layers()[i].self_attn.mechanism = std::move(before_[i]);
}

std::vector<std::int32_t> shifted_targets(std::span<const std::int32_t> ids, Index batch) {
  const std::size_t seq_len = ids.size() / static_cast<std::size_t>(batch);
  std::vector<std::int32_t> targets(ids.size(), -1);
  for (std::size_t t = 0; t + 1 < ids.size(); ++t)
    if ((t + 1) % seq_len != 0) targets[t] = ids[t + 1];
  return targets;
}

RotaryTable rotary_table(const RopeConfig& config, Index rotary_dim, Index seq_len) {
  const Index half = rotary_dim / 2;
  RotaryTable table{Tensor({seq_len, half}), Tensor({seq_len, half})};
  for (Index i = 0; i < half; ++i) {
    const double frequency = config.frequency(i, rotary_dim, seq_len);
    for (Index t = 0; t < seq_len; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      table.cos.data()[t * half + i] = static_cast<Real>(config.attention_factor * std::cos(angle));
      table.sin.data()[t * half + i] = static_cast<Real>(config.attention_factor * std::sin(angle));
    }
  }
  return table;
}

void initialise(Decoder& decoder, Rng& rng) {
  const ModelConfig& c = decoder.config();
  for_each_parameter(decoder, [&](const std::string& name, Variable& p) {
    Tensor& value = p.mutable_value();
    if (name.ends_with(".bias")) {
      value.fill(0);
    } else if (value.rank() == 1) {
      value.fill(static_cast<Real>(1 - c.norm_weight_offset));
    } else {
      const bool residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
      const double std = c.initializer_range /
                         (residual ? std::sqrt(2.0 * static_cast<double>(c.num_hidden_layers)) : 1);
      for (Real& w : value.span()) w = static_cast<Real>(std * rng.normal());
    }
  });
}

}  // namespace focus
