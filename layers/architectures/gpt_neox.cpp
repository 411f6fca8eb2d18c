#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023): LayerNorm, attention and MLP in
// parallel, rotary positions on the first part of each head, q, k and v in one matrix, head by
// head.
namespace focus {
namespace {

/// What its models are, whatever their size.
ModelConfig gpt_neox_form() {
  ModelConfig c;
  c.norm = NormKind::layer_norm;
  c.parallel_residual = true;
  c.activation = Activation::gelu;
  c.gated_mlp = false;
  c.rope.partial_rotary_factor = 0.25;
  c.attention_bias = c.attention_out_bias = c.mlp_bias = true;
  return c;
}

void read_gpt_neox(const JsonFields& json, ModelConfig& c) {
  c.hidden_size = json.integer("hidden_size");
  c.intermediate_size = json.integer("intermediate_size");
  c.num_hidden_layers = json.integer("num_hidden_layers");
  c.num_attention_heads = c.num_key_value_heads = json.integer("num_attention_heads");
  c.head_dim = head_dim_of(json, c);
  pass_over(json, "head_dim", static_cast<double>(c.head_dim));
  c.max_position_embeddings = json.integer("max_position_embeddings", 2048);
  c.norm_eps = json.number("layer_norm_eps", 1e-5);
  c.activation = activation_named(json.text("hidden_act", "gelu"), json.where());
  c.parallel_residual = json.boolean("use_parallel_residual", true);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", true);
  c.rope = read_rope(json, c, {.theta = "rotary_emb_base", .partial = "rotary_pct"});
  pass_over(json, "rope_theta", c.rope.theta);
  pass_over(json, "partial_rotary_factor", c.rope.partial_rotary_factor);
  c.tie_word_embeddings = json.boolean("tie_word_embeddings", false);
}

nlohmann::ordered_json write_gpt_neox(const ModelConfig& c) {
  return {{"architectures", {"GPTNeoXForCausalLM"}},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"max_position_embeddings", c.max_position_embeddings},
          {"layer_norm_eps", c.norm_eps},
          {"hidden_act", activation_name(c.activation)},
          {"use_parallel_residual", c.parallel_residual},
          {"attention_bias", c.attention_bias},
          {"attention_dropout", 0.0},
          {"hidden_dropout", 0.0},
          {"rotary_emb_base", c.rope.theta},
          {"rotary_pct", c.rope.partial_rotary_factor},
          {"rope_parameters", write_rope(c.rope)}};
}

std::vector<TensorRule> rules() {
  const std::string ours = "layers.{}.", theirs = "gpt_neox.layers.{}.";
  std::vector<TensorRule> rules = {{"embed_tokens.weight", "gpt_neox.embed_in.weight"},
                                   {"norm.weight", "gpt_neox.final_layer_norm.weight"},
                                   {"norm.bias", "gpt_neox.final_layer_norm.bias"},
                                   {"lm_head.weight", "embed_out.weight"}};
  for (const std::string part : {".weight", ".bias"}) {
    const auto add = [&](const char* name, const char* published) {
      rules.push_back({ours + name + part, theirs + published + part});
    };
    add("input_layernorm", "input_layernorm");
    add("post_attention_layernorm", "post_attention_layernorm");
    add("self_attn.o_proj", "attention.dense");
    add("mlp.up_proj", "mlp.dense_h_to_4h");
    add("mlp.down_proj", "mlp.dense_4h_to_h");
    int number = 0;
    for (const std::string name : {"q_proj", "k_proj", "v_proj"})
      rules.push_back({.ours = ours + "self_attn." + name + part,
                       .theirs = theirs + "attention.query_key_value" + part,
                       .part = number++,
                       .parts = 3,
                       .by_head = true});
  }
  return rules;
}

/// The activation is said nowhere: transformers' own, which llama.cpp rounds (gelu by tanh).
void read_gguf_gpt_neox(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  c.parallel_residual = s.flag("use_parallel_residual", true);
}

void write_gguf_gpt_neox(const ModelConfig& c, GgufSettingsWriter& s) {
  s.flag("use_parallel_residual", c.parallel_residual);
  s.notice(
      "llama.cpp computes this architecture's gelu by tanh; transformers and this program compute "
      "it "
      "exactly");
}

}  // namespace

const Family& gpt_neox_family() {
  static const Family family = {
      .model_type = "gpt_neox",
      .base_prefix = "gpt_neox.",
      .common = gpt_neox_form(),
      .read = read_gpt_neox,
      .write = write_gpt_neox,
      .rules = rules(),
      .keys = {{"norm_eps", "layer_norm_eps"},
               {"rope_theta", "rotary_emb_base"},
               {"partial_rotary_factor", "rotary_pct"}},
      .ignored = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
      .gguf = {.architecture = "gptneox", .read = read_gguf_gpt_neox, .write = write_gguf_gpt_neox},
  };
  return family;
}

}  // namespace focus
