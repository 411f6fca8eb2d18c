#pragma once

#include <string>

#include "layers/decoder.h"
#include "layers/family.h"

namespace focus {

/// A model of a few thousand parameters that uses what its family uses: GPT-2 biases and learned
/// positions, Llama grouped-query attention and an untied head, Gemma 2 local layers and soft-caps
/// that bite, Gemma 3 local and global layers with a rope each,
/// Granite all its multipliers.
inline ModelConfig tiny_config(const std::string& model_type) {
  const Family& family = find_family(model_type, "tiny model");
  ModelConfig c = family.common;
  c.model_type = model_type;
  c.vocab_size = 37;
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = c.norm == NormKind::layer_norm ? 4 : 2;
  c.head_dim = 6;
  c.max_position_embeddings = 128;
  c.initializer_range = 0.15;
  if (c.rope.partial_rotary_factor < 1) c.rope.partial_rotary_factor = 0.7;  // 4 of 6 numbers
  if (c.attn_logit_softcapping > 0) {
    c.attn_logit_softcapping = 0.5;
    c.final_logit_softcapping = 0.75;
    c.query_pre_attn_scalar = 11;
  }
  if (c.local_rope) c.local_rope->theta = 100;
  if (family.has_local_layers()) {
    for (Index i = 0; i < c.num_hidden_layers; ++i)
      c.sliding_windows.push_back(family.slides(i) ? 9 : 0);
    // Global layers of a long period would all lie behind the last.
    if (family.slides(1) && !(family.slides(3) && family.slides(5))) c.sliding_windows.back() = 0;
  }
  if (family.rotary_period > 0) c.rotary_layers = {true, false, true};
  if (model_type == "granite") {
    c.embedding_multiplier = 3;
    c.residual_multiplier = 0.7;
    c.attention_multiplier = 0.3;
    c.logits_scaling = 2;
  }
  return c;
}

inline Decoder tiny_decoder(const ModelConfig& config, std::uint64_t seed = 1) {
  Decoder decoder(config);
  Rng rng(seed);
  initialise(decoder, rng);
  return decoder;
}
inline Decoder tiny_decoder(const std::string& model_type, std::uint64_t seed = 1) {
  return tiny_decoder(tiny_config(model_type), seed);
}

}  // namespace focus
