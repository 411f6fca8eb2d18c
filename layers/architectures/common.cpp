#include "layers/architectures/common.h"

#include <cmath>

#include "data/files/notice.h"
#include "layers/gguf_settings.h"

namespace focus {

Index head_dim_of(const JsonFields& json, const ModelConfig& config, const char* width_key,
                  const char* heads_key) {
  const Index width = config.hidden_size, heads = config.num_attention_heads;
  if (heads <= 0) return 0;  // validate() says which key is wrong
  check(width % heads == 0, "{}: {} {} does not divide {} {}", json.where(), heads_key, heads,
        width_key, width);
  return width / heads;
}

void report_ignored(const JsonFields& json, const char* key, double used) {
  if (!json.has(key)) return;
  const double given = json.number(key);
  if (given != used)
    notice("{}: {} {} is ignored for this model_type; {} is used", json.where(), key, given, used);
}

std::vector<bool> all_but_every(Index period, Index layers) {
  std::vector<bool> flags;
  for (Index i = 0; i < layers; ++i) flags.push_back(i % period != period - 1);
  return flags;
}

double read_softcap(const JsonFields& json, const char* key, double otherwise) {
  if (!json.mentions(key)) return otherwise;
  const std::optional<double> cap = json.nullable_number(key, otherwise);
  check(!cap || *cap > 0, "{}: {} must be positive or null, not {}", json.where(), key, *cap);
  return cap.value_or(0);
}

void read_gemma(const JsonFields& json, ModelConfig& c) {
  c.query_pre_attn_scalar = json.number("query_pre_attn_scalar", 256);
  check(c.query_pre_attn_scalar > 0, "{}: query_pre_attn_scalar must be positive, not {}",
        json.where(), c.query_pre_attn_scalar);
  if (c.query_pre_attn_scalar == static_cast<double>(c.head_dim)) c.query_pre_attn_scalar = 0;
  c.final_logit_softcapping =
      read_softcap(json, "final_logit_softcapping", c.final_logit_softcapping);
  check(!json.boolean("use_bidirectional_attention", false),
        "{}: use_bidirectional_attention is not supported: attention here is causal", json.where());
}

void write_gemma(const ModelConfig& c, nlohmann::ordered_json& json) {
  if (c.activation == Activation::gelu_tanh) json["hidden_activation"] = "gelu_pytorch_tanh";
  const double scalar = c.query_pre_attn_scalar;
  if (scalar == 0)
    json["query_pre_attn_scalar"] = c.head_dim;
  else if (scalar == std::floor(scalar))  // transformers takes it as an integer only
    json["query_pre_attn_scalar"] = static_cast<Index>(scalar);
  else
    json["query_pre_attn_scalar"] = scalar;
  const auto write_softcap = [&](const char* key, double cap) {
    json[key] = nullptr;
    if (cap > 0) json[key] = cap;
  };
  write_softcap("attn_logit_softcapping", c.attn_logit_softcapping);
  write_softcap("final_logit_softcapping", c.final_logit_softcapping);
}

double gguf_query_scalar(const ModelConfig& c, Index large_layers) {
  if (c.num_hidden_layers != large_layers) return 0;
  return static_cast<double>(c.hidden_size) / static_cast<double>(c.num_attention_heads);
}

void check_gguf_query_scalar(const ModelConfig& c, Index large_layers, GgufSettingsWriter& s) {
  const auto scalar_of = [&](double x) { return x == 0 ? static_cast<double>(c.head_dim) : x; };
  if (scalar_of(gguf_query_scalar(c, large_layers)) != scalar_of(c.query_pre_attn_scalar))
    s.fail_unsupported(fmt::format("its query_pre_attn_scalar is {}", c.query_pre_attn_scalar));
}

std::vector<TensorRule> llama_rules(const ModelConfig& common) {
  std::vector<TensorRule> rules = {
      {"embed_tokens", "model.embed_tokens"}, {"norm", "model.norm"}, {"lm_head", "lm_head"}};
  const auto add = [&](const std::string& ours, const std::string& theirs) {
    rules.push_back({"layers.{}." + ours, "model.layers.{}." + theirs});
  };
  for (const char* same : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm",
                           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm"})
    add(same, same);
  // The second norm of Llama, before the MLP, has another name beside a norm after attention.
  add("post_attention_layernorm",
      common.norm_after ? "pre_feedforward_layernorm" : "post_attention_layernorm");
  add("attention_out_norm", "post_attention_layernorm");
  add("mlp_out_norm", "post_feedforward_layernorm");
  return rules;
}

}  // namespace focus
