#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_settings.h"

// GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each sub-layer, biases
// everywhere, tied head. Its Conv1D weights are stored [in, out], q, k and v in one.
namespace focus {
namespace {

/// What its models are, whatever their size.
ModelConfig gpt2_form() {
  ModelConfig c;
  c.norm = NormKind::layer_norm;
  c.activation = Activation::gelu_tanh;
  c.gated_mlp = false;
  c.learned_positions = true;
  c.attention_bias = c.attention_out_bias = c.mlp_bias = true;
  c.tie_word_embeddings = true;
  return c;
}

void read_gpt2(const JsonFields& json, ModelConfig& c) {
  c.hidden_size = json.integer("n_embd");
  c.num_hidden_layers = json.integer("n_layer");
  c.num_attention_heads = c.num_key_value_heads = json.integer("n_head");
  c.max_position_embeddings = json.integer("n_positions");
  c.intermediate_size = json.integer("n_inner", 4 * c.hidden_size);
  c.head_dim = head_dim_of(json, c, "n_embd", "n_head");
  pass_over(json, "head_dim", static_cast<double>(c.head_dim));
  c.norm_eps = json.number("layer_norm_epsilon", 1e-5);
  c.activation = activation_named(json.text("activation_function", "gelu_new"), json.where());
  c.tie_word_embeddings = json.boolean("tie_word_embeddings", true);
  check(json.boolean("scale_attn_weights", true), "{}: scale_attn_weights false is not supported",
        json.where());
  check(!json.boolean("scale_attn_by_inverse_layer_idx", false),
        "{}: scale_attn_by_inverse_layer_idx is not supported", json.where());
  check(!json.boolean("add_cross_attention", false), "{}: add_cross_attention is not supported",
        json.where());
}

nlohmann::ordered_json write_gpt2(const ModelConfig& c) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"n_embd", c.hidden_size},
          {"n_layer", c.num_hidden_layers},
          {"n_head", c.num_attention_heads},
          {"n_positions", c.max_position_embeddings},
          {"n_inner", c.intermediate_size},
          {"layer_norm_epsilon", c.norm_eps},
          {"activation_function", activation_name(c.activation)},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0}};
}

/// The common settings say all.
void read_gguf_gpt2(const GgufSettings&, ModelConfig&) {}

}  // namespace

const Family& gpt2_family() {
  static const Family family = {
      .model_type = "gpt2",
      .base_prefix = "transformer.",
      .common = gpt2_form(),
      .read = read_gpt2,
      .write = write_gpt2,
      .rules =
          {{"embed_tokens.weight", "transformer.wte.weight"},
           {"embed_positions.weight", "transformer.wpe.weight"},
           {"layers.{}.input_layernorm.weight", "transformer.h.{}.ln_1.weight"},
           {"layers.{}.input_layernorm.bias", "transformer.h.{}.ln_1.bias"},
           {"layers.{}.self_attn.q_proj.weight", "transformer.h.{}.attn.c_attn.weight", true, 0, 3},
           {"layers.{}.self_attn.k_proj.weight", "transformer.h.{}.attn.c_attn.weight", true, 1, 3},
           {"layers.{}.self_attn.v_proj.weight", "transformer.h.{}.attn.c_attn.weight", true, 2, 3},
           {"layers.{}.self_attn.q_proj.bias", "transformer.h.{}.attn.c_attn.bias", false, 0, 3},
           {"layers.{}.self_attn.k_proj.bias", "transformer.h.{}.attn.c_attn.bias", false, 1, 3},
           {"layers.{}.self_attn.v_proj.bias", "transformer.h.{}.attn.c_attn.bias", false, 2, 3},
           {"layers.{}.self_attn.o_proj.weight", "transformer.h.{}.attn.c_proj.weight", true},
           {"layers.{}.self_attn.o_proj.bias", "transformer.h.{}.attn.c_proj.bias"},
           {"layers.{}.post_attention_layernorm.weight", "transformer.h.{}.ln_2.weight"},
           {"layers.{}.post_attention_layernorm.bias", "transformer.h.{}.ln_2.bias"},
           {"layers.{}.mlp.up_proj.weight", "transformer.h.{}.mlp.c_fc.weight", true},
           {"layers.{}.mlp.up_proj.bias", "transformer.h.{}.mlp.c_fc.bias"},
           {"layers.{}.mlp.down_proj.weight", "transformer.h.{}.mlp.c_proj.weight", true},
           {"layers.{}.mlp.down_proj.bias", "transformer.h.{}.mlp.c_proj.bias"},
           {"norm.weight", "transformer.ln_f.weight"},
           {"norm.bias", "transformer.ln_f.bias"},
           {"lm_head.weight", "lm_head.weight"}},
      .keys = {{"hidden_size", "n_embd"},
               {"intermediate_size", "n_inner"},
               {"num_hidden_layers", "n_layer"},
               {"num_attention_heads", "n_head"},
               {"max_position_embeddings", "n_positions"},
               {"norm_eps", "layer_norm_epsilon"}},
      .ignored = {".attn.bias", ".attn.masked_bias"},
      .gguf = {.architecture = "gpt2", .read = read_gguf_gpt2},
  };
  return family;
}

}  // namespace focus
