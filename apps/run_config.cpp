#include "apps/run_config.h"

#include "autograd/check.h"

namespace focus {

ModelConfig ModelShape::to_model_config(Index vocab_size, Index context) const {
  ModelConfig c;
  check(model_type == "gpt2" || model_type == "llama",
        "model.model_type must be gpt2 or llama, not \"{}\"", model_type);
  const bool gpt2 = model_type == "gpt2";
  c.model_type = model_type;
  c.vocab_size = vocab_size;
  c.hidden_size = hidden_size;
  // Llama's gated MLP has three matrices where GPT-2's has two: 8/3 against 4 widths.
  c.intermediate_size = intermediate_size > 0 ? intermediate_size
                        : gpt2                ? 4 * hidden_size
                                              : (hidden_size * 8 / 3 + 31) / 32 * 32;
  c.num_hidden_layers = num_hidden_layers;
  c.num_attention_heads = num_attention_heads;
  c.num_key_value_heads =
      gpt2 || num_key_value_heads == 0 ? num_attention_heads : num_key_value_heads;
  check(hidden_size % num_attention_heads == 0,
        "model: num_attention_heads {} does not divide hidden_size {}", num_attention_heads,
        hidden_size);
  c.head_dim = hidden_size / num_attention_heads;
  c.max_position_embeddings = context;
  c.norm = gpt2 ? NormKind::layer_norm : NormKind::rms_norm;
  c.activation = gpt2 ? Activation::gelu_tanh : Activation::silu;
  c.gated_mlp = !gpt2;
  c.learned_positions = gpt2;
  c.attention_bias = c.attention_out_bias = c.mlp_bias = gpt2;
  c.tie_word_embeddings = tie_word_embeddings;
  c.rope.theta = rope_theta;
  c.initializer_range = initializer_range;
  c.validate("model");
  return c;
}

void RunConfig::validate() const {
  check(!data.train.empty(), "data.train is empty: name text files or folders");
  check(method == Method::scratch || !base.empty(),
        "base is empty: {} needs a checkpoint (a store or a Hugging Face folder)",
        enum_names(method)[static_cast<std::size_t>(method)]);
  check(method != Method::scratch || base.empty(), "base is set, but scratch starts from nothing");
  check(method != Method::scratch || !tokenizer.empty(),
        "tokenizer is empty: scratch needs one (bytes, or a file)");
  check(!out.empty(), "out is empty: name a folder for this run");
  validate_step();
}

void RunConfig::validate_step() const {
  check(compute == Compute::float32 || !trains_base(),
        "compute bf16 is for frozen weights, but {} trains them all: use retrofit, or float32",
        enum_names(method)[static_cast<std::size_t>(method)]);
  optim.validate();
  if (has_focus()) focus.validate();
}

}  // namespace focus
