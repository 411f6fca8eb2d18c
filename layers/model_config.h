#pragma once

#include <optional>
#include <string>

#include "autograd/tensor.h"

namespace focus {

enum class NormKind { layer_norm, rms_norm };
enum class Activation { gelu, gelu_tanh, silu };

/// Rotary position embeddings: base frequency and how a model stretches them beyond the length it
/// was trained at.
struct RopeConfig {
  enum class Scaling { none, linear, llama3 };
  double theta = 10000;  // rope_theta
  Scaling scaling = Scaling::none;
  double factor = 1;
  double low_freq_factor = 1;   // llama3
  double high_freq_factor = 4;  // llama3
  Index original_max_position_embeddings = 0;
};

/// A decoder-only transformer as data: names and meanings are those of published config.json files.
/// The block's optional parts are switched here; there is no subclass of a family.
struct ModelConfig {
  std::string model_type;
  Index vocab_size = 0;
  Index hidden_size = 0;
  Index intermediate_size = 0;
  Index num_hidden_layers = 0;
  Index num_attention_heads = 0;
  Index num_key_value_heads = 0;
  Index head_dim = 0;
  Index max_position_embeddings = 0;

  NormKind norm = NormKind::rms_norm;
  double norm_eps = 1e-5;
  Activation activation = Activation::silu;
  bool gated_mlp = true;           // act(gate(x)) * up(x) instead of act(up(x))
  bool learned_positions = false;  // a table of positions instead of rotary embeddings
  RopeConfig rope;
  bool attention_bias = false;  // on q, k, v
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;

  double initializer_range = 0.02;
  std::optional<Index> bos_token_id;
  std::optional<Index> eos_token_id;

  /// Throws std::invalid_argument naming the key where dimensions are absent, absurd or do not
  /// divide each other; `where` is the file, for the message.
  void validate(const std::string& where) const;
};

/// Parses a published config.json. Unknown model types, rope scalings and activations are refused
/// by name: they are never guessed.
ModelConfig parse_model_config(const std::string& json_text, const std::string& where);

/// The config.json of a model made here: what parse_model_config reads back, and transformers too.
std::string write_model_config(const ModelConfig& config);

}  // namespace focus
