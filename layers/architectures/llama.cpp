#include <nlohmann/json.hpp>

#include "layers/family.h"

// Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024): RMSNorm before each sub-layer,
// rotary positions, SwiGLU, grouped-query attention.
namespace focus {
namespace {

ModelConfig read(const JsonFields& json) {
  ModelConfig c;
  c.hidden_size = json.integer("hidden_size");
  c.intermediate_size = json.integer("intermediate_size");
  c.num_hidden_layers = json.integer("num_hidden_layers");
  c.num_attention_heads = json.integer("num_attention_heads");
  c.num_key_value_heads = json.integer("num_key_value_heads", c.num_attention_heads);
  c.head_dim = json.integer("head_dim",
                            c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0);
  c.max_position_embeddings = json.integer("max_position_embeddings", 2048);
  c.norm_eps = json.number("rms_norm_eps", 1e-6);
  c.activation = activation_named(json.text("hidden_act", "silu"), json.where());
  c.rope = read_rope(json);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  c.mlp_bias = json.boolean("mlp_bias", false);
  c.tie_word_embeddings = json.boolean("tie_word_embeddings", false);
  check(json.integer("pretraining_tp", 1) == 1, "{}: pretraining_tp other than 1 is not supported",
        json.where());
  return c;
}

nlohmann::ordered_json write(const ModelConfig& c) {
  nlohmann::ordered_json rope = {{"rope_type", "default"}, {"rope_theta", c.rope.theta}};
  if (c.rope.scaling == RopeConfig::Scaling::linear) {
    rope["rope_type"] = "linear";
    rope["factor"] = c.rope.factor;
  } else if (c.rope.scaling == RopeConfig::Scaling::llama3) {
    rope["rope_type"] = "llama3";
    rope["factor"] = c.rope.factor;
    rope["low_freq_factor"] = c.rope.low_freq_factor;
    rope["high_freq_factor"] = c.rope.high_freq_factor;
    rope["original_max_position_embeddings"] = c.rope.original_max_position_embeddings;
  }
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_key_value_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_position_embeddings},
          {"rms_norm_eps", c.norm_eps},
          {"hidden_act", activation_name(c.activation)},
          {"attention_bias", c.attention_bias},
          {"mlp_bias", c.mlp_bias},
          {"rope_theta", c.rope.theta},
          {"rope_parameters", rope}};
}

}  // namespace

const Family& llama_family() {
  static const Family family = {
      .model_type = "llama",
      .base_prefix = "model.",
      .read = read,
      .write = write,
      .rules = {{"embed_tokens.weight", "model.embed_tokens.weight"},
                {"layers.{}.input_layernorm.weight", "model.layers.{}.input_layernorm.weight"},
                {"layers.{}.self_attn.q_proj.weight", "model.layers.{}.self_attn.q_proj.weight"},
                {"layers.{}.self_attn.q_proj.bias", "model.layers.{}.self_attn.q_proj.bias"},
                {"layers.{}.self_attn.k_proj.weight", "model.layers.{}.self_attn.k_proj.weight"},
                {"layers.{}.self_attn.k_proj.bias", "model.layers.{}.self_attn.k_proj.bias"},
                {"layers.{}.self_attn.v_proj.weight", "model.layers.{}.self_attn.v_proj.weight"},
                {"layers.{}.self_attn.v_proj.bias", "model.layers.{}.self_attn.v_proj.bias"},
                {"layers.{}.self_attn.o_proj.weight", "model.layers.{}.self_attn.o_proj.weight"},
                {"layers.{}.self_attn.o_proj.bias", "model.layers.{}.self_attn.o_proj.bias"},
                {"layers.{}.post_attention_layernorm.weight",
                 "model.layers.{}.post_attention_layernorm.weight"},
                {"layers.{}.mlp.gate_proj.weight", "model.layers.{}.mlp.gate_proj.weight"},
                {"layers.{}.mlp.gate_proj.bias", "model.layers.{}.mlp.gate_proj.bias"},
                {"layers.{}.mlp.up_proj.weight", "model.layers.{}.mlp.up_proj.weight"},
                {"layers.{}.mlp.up_proj.bias", "model.layers.{}.mlp.up_proj.bias"},
                {"layers.{}.mlp.down_proj.weight", "model.layers.{}.mlp.down_proj.weight"},
                {"layers.{}.mlp.down_proj.bias", "model.layers.{}.mlp.down_proj.bias"},
                {"norm.weight", "model.norm.weight"},
                {"lm_head.weight", "lm_head.weight"}},
      .ignored = {".rotary_emb.inv_freq"},
  };
  return family;
}

}  // namespace focus
