#pragma once

#include <string>
#include <vector>

#include "layers/decoder.h"

namespace focus {

/// A model of a few thousand parameters that uses what its family uses: GPT-2 biases and learned
/// positions, Llama grouped-query attention and an untied head.
inline ModelConfig tiny_config(const std::string& model_type) {
  ModelConfig c;
  c.model_type = model_type;
  c.vocab_size = 37;
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = model_type == "gpt2" ? 4 : 2;
  c.head_dim = 6;
  c.max_position_embeddings = 128;
  c.initializer_range = 0.15;
  if (model_type == "gpt2") {
    c.norm = NormKind::layer_norm;
    c.activation = Activation::gelu_tanh;
    c.gated_mlp = false;
    c.learned_positions = true;
    c.attention_bias = c.attention_out_bias = c.mlp_bias = true;
    c.tie_word_embeddings = true;
  }
  return c;
}

inline Decoder tiny_decoder(const std::string& model_type, std::uint64_t seed = 1) {
  Decoder decoder(tiny_config(model_type));
  Rng rng(seed);
  initialise(decoder, rng);
  return decoder;
}

}  // namespace focus
