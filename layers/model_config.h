#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor.h"

namespace focus {

enum class NormKind { layer_norm, rms_norm };
enum class Activation { gelu, gelu_tanh, silu };
/// RMSNorm of q and k before the rotary embeddings: over each head, or over all heads at once.
enum class QkNorm { none, per_head, full_width };

/// Rotary position embeddings: base frequency and how a model stretches them beyond the length it
/// was trained at.
struct RopeConfig {
  enum class Scaling { none, linear, dynamic, yarn, llama3, longrope };
  double theta = 10000;  // rope_theta
  Scaling scaling = Scaling::none;
  double factor = 1;
  double low_freq_factor = 1;   // llama3
  double high_freq_factor = 4;  // llama3
  double beta_fast = 32;        // yarn: turns within the original length of what is kept,
  double beta_slow = 1;         // and of what is stretched by the whole factor
  bool truncate = true;         // yarn: both ends of the ramp between them are whole pairs
  std::vector<double> short_factor = {}, long_factor = {};  // longrope, of each pair
  double attention_factor = 1;                 // yarn, longrope: cosines and sines are multiplied
  Index original_max_position_embeddings = 0;  // dynamic: beyond it frequencies are stretched
  double partial_rotary_factor = 1;  // of a head's numbers, the first ones, that are rotated

  /// Radians from one position to the next of pair i of `rotary_dim` numbers, in a pass that ends
  /// with position seq_len - 1.
  double frequency(Index i, Index rotary_dim, Index seq_len = 0) const;
  /// Whether a pass of another length may have other frequencies.
  bool depends_on_length() const {
    return scaling == Scaling::dynamic || scaling == Scaling::longrope;
  }
  /// Passes of two lengths that give the same number have the same frequencies.
  Index length_class(Index seq_len) const {
    if (!depends_on_length() || seq_len <= original_max_position_embeddings) return 0;
    return scaling == Scaling::dynamic ? seq_len : 1;
  }

  bool operator==(const RopeConfig&) const = default;
};

/// A decoder-only transformer as data: names and meanings are those of published config.json files.
/// The block's optional parts are switched here; there is no subclass of a family.
struct ModelConfig {
  static constexpr Index kMostLayers = 4096;

  std::string model_type = {};
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
  double norm_weight_offset = 0;   // added to every norm's weight; its initial value is 1 without
  bool norm_before = true;         // on what a sub-layer reads
  bool norm_after = false;         // on what a sub-layer adds to the residual stream
  bool parallel_residual = false;  // attention and MLP read the same x, and their sum is added
  QkNorm qk_norm = QkNorm::none;
  Activation activation = Activation::silu;
  bool gated_mlp = true;           // act(gate(x)) * up(x) instead of act(up(x))
  bool learned_positions = false;  // a table of positions instead of rotary embeddings
  RopeConfig rope = {};
  std::optional<RopeConfig> local_rope =
      {};                                // of layers with a sliding window, where it is another
  std::vector<bool> rotary_layers = {};  // whether a layer has rotary embeddings. Empty: all have
  bool scaled_embeddings = false;        // multiplied by sqrt(hidden_size)
  double embedding_multiplier = 1;
  double residual_multiplier = 1;           // of what a sub-layer adds to the residual stream
  double attention_multiplier = 0;          // of scores; 0: by query_pre_attn_scalar
  double logits_scaling = 1;                // logits are divided by it
  double query_pre_attn_scalar = 0;         // scores are divided by its root; 0: head_dim
  double attn_logit_softcapping = 0;        // c: scores become c tanh(s / c); 0: none
  double final_logit_softcapping = 0;       // the same of the output head's logits
  std::vector<Index> sliding_windows = {};  // of each layer the keys a token sees, itself included;
                                            // 0: all. Empty: all in every layer
  bool attention_bias = false;              // on q, k, v
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;

  double initializer_range = 0.02;
  std::optional<Index> bos_token_id = {};
  std::vector<Index> eos_token_ids = {};  // a document ends with the first, a generation with any

  /// 0: the layer has no window.
  Index sliding_window(Index layer) const {
    return sliding_windows.empty() ? 0 : sliding_windows.at(static_cast<std::size_t>(layer));
  }
  /// What rotary_layers becomes of flags of all layers.
  void set_rotary_layers(std::vector<bool> rotary) {
    const bool all = std::ranges::all_of(rotary, std::identity());
    rotary_layers = all ? std::vector<bool>() : std::move(rotary);
  }
  /// Whether a layer rotates its q and k.
  bool is_rotary(Index layer) const {
    return !learned_positions &&
           (rotary_layers.empty() || rotary_layers.at(static_cast<std::size_t>(layer)));
  }
  /// Whether a layer rotates by local_rope instead of rope.
  bool is_local_rope(Index layer) const { return local_rope && sliding_window(layer) > 0; }
  /// What scores are multiplied by.
  double attention_scale() const;
  /// The width of the layers that have one; 0: none has.
  Index widest_window() const {
    return sliding_windows.empty() ? 0 : std::ranges::max(sliding_windows);
  }
  /// Numbers of a head that are rotated; 0 with learned positions.
  Index rotary_dim() const {
    if (learned_positions) return 0;
    return static_cast<Index>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
  }

  bool operator==(const ModelConfig&) const = default;

  /// Throws std::invalid_argument naming the key where dimensions are absent, absurd or do not
  /// divide each other; `where` is the file, for the message, and `key` gives the name that a key
  /// of ours has there.
  using KeyName = std::function<std::string(const std::string& ours)>;
  void validate(const std::string& where, const KeyName& key = std::identity()) const;
};

/// The model_type of every family.
std::vector<std::string> family_names();

/// Parses a published config.json. Unknown model types, rope scalings and activations are refused
/// by name: they are never guessed.
ModelConfig parse_model_config(const std::string& json_text, const std::string& where);

/// The config.json of a model made here: what parse_model_config reads back, and transformers too.
std::string write_model_config(const ModelConfig& config);

}  // namespace focus
