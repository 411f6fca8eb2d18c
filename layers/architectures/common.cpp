#include "layers/architectures/common.h"

#include <cmath>

#include "data/files/notice.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

namespace focus {

ModelConfig llama_form() { return {}; }

Index head_dim_of(const JsonFields& json, const ModelConfig& config, const char* width_key,
                  const char* heads_key) {
  const Index width = config.hidden_size, heads = config.num_attention_heads;
  if (heads <= 0) return 0;  // validate() says which key is wrong
  check(width % heads == 0, "{}: {} {} does not divide {} {}", json.where(), heads_key, heads,
        width_key, width);
  return width / heads;
}

void pass_over(const JsonFields& json, const char* key, double holds) {
  if (!json.has(key)) return;
  const double said = json.number(key);
  if (said != holds)
    notice("{}: {} {} is ignored for this model_type; {} is used", json.where(), key, said, holds);
}

void read_common(const JsonFields& json, const KeyDefaults& defaults, ModelConfig& c) {
  c.hidden_size = json.integer("hidden_size");
  c.intermediate_size = json.integer("intermediate_size");
  c.num_hidden_layers = json.integer("num_hidden_layers");
  c.num_attention_heads = json.integer("num_attention_heads");
  c.num_key_value_heads =
      json.nullable_integer("num_key_value_heads", defaults.num_key_value_heads).value_or(0);
  if (c.num_key_value_heads == 0 && !json.has("num_key_value_heads"))
    c.num_key_value_heads = c.num_attention_heads;
  if (json.has("head_dim"))
    c.head_dim = json.integer("head_dim");
  else
    c.head_dim = defaults.head_dim > 0 ? defaults.head_dim : head_dim_of(json, c);
  c.max_position_embeddings =
      json.integer("max_position_embeddings", defaults.max_position_embeddings);
  c.norm_eps = json.number("rms_norm_eps", defaults.rms_norm_eps);
  if (json.has(defaults.activation_key))
    c.activation = activation_named(json.text(defaults.activation_key), json.where());
  c.tie_word_embeddings = json.boolean("tie_word_embeddings", c.tie_word_embeddings);
  if (defaults.own_rope) return;
  c.rope = read_rope(json, c);
  check(c.rope.partial_rotary_factor == 1,
        "{}: partial_rotary_factor {} is not supported: this model_type rotates whole heads",
        json.where(), c.rope.partial_rotary_factor);
}

nlohmann::ordered_json write_common(const char* architecture, const ModelConfig& c) {
  return {{"architectures", {architecture}},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_key_value_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_position_embeddings},
          {"rms_norm_eps", c.norm_eps},
          {"hidden_act", activation_name(c.activation)}};
}

void add_rope(const ModelConfig& config, nlohmann::ordered_json& json) {
  json["rope_theta"] = config.rope.theta;
  json["rope_parameters"] = write_rope(config.rope);
}

void add_ropes_by_layer(const ModelConfig& config, nlohmann::ordered_json& json) {
  json["rope_theta"] = config.rope.theta;
  const RopeConfig& local = config.local_rope ? *config.local_rope : config.rope;
  json["rope_parameters"] = {{"full_attention", write_rope(config.rope)},
                             {"sliding_attention", write_rope(local)}};
}

void read_query_scalar(const JsonFields& json, ModelConfig& c) {
  c.query_pre_attn_scalar = json.number("query_pre_attn_scalar", 256);
  check(c.query_pre_attn_scalar > 0, "{}: query_pre_attn_scalar must be positive, not {}",
        json.where(), c.query_pre_attn_scalar);
  if (c.query_pre_attn_scalar == static_cast<double>(c.head_dim)) c.query_pre_attn_scalar = 0;
}

namespace {

/// transformers takes it as an integer only.
nlohmann::ordered_json query_scalar(const ModelConfig& c) {
  const double x = c.query_pre_attn_scalar;
  if (x == 0) return c.head_dim;
  return x == std::floor(x) ? nlohmann::ordered_json(static_cast<Index>(x))
                            : nlohmann::ordered_json(x);
}

nlohmann::ordered_json softcap_or_null(double cap) {
  return cap > 0 ? nlohmann::ordered_json(cap) : nlohmann::ordered_json(nullptr);
}

}  // namespace

void check_causal(const JsonFields& json) {
  check(!json.boolean("use_bidirectional_attention", false),
        "{}: use_bidirectional_attention is not supported: attention here is causal", json.where());
}

nlohmann::ordered_json write_gemma(const char* architecture, const ModelConfig& c) {
  nlohmann::ordered_json json = write_common(architecture, c);
  json.erase("hidden_act");
  json["hidden_activation"] =
      c.activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : activation_name(c.activation);
  json["attention_bias"] = c.attention_bias;
  json["query_pre_attn_scalar"] = query_scalar(c);
  json["attn_logit_softcapping"] = softcap_or_null(c.attn_logit_softcapping);
  json["final_logit_softcapping"] = softcap_or_null(c.final_logit_softcapping);
  json["sliding_window"] = window_or_null(c);
  json["layer_types"] = layer_types(c);
  return json;
}

double read_softcap(const JsonFields& json, const char* key, double otherwise) {
  if (!json.mentions(key)) return otherwise;
  const std::optional<double> cap = json.nullable_number(key, otherwise);
  check(!cap || *cap > 0, "{}: {} must be positive or null, not {}", json.where(), key, *cap);
  return cap.value_or(0);
}

void read_windows(const JsonFields& json, std::optional<Index> window,
                  const std::function<bool(Index layer)>& slides, ModelConfig& c) {
  c.sliding_windows.clear();
  // A count beyond any sense is refused by validate(), before anything of that size is made.
  if (c.num_hidden_layers > ModelConfig::kMostLayers) return;
  std::vector<std::string> types;
  if (json.has("layer_types")) {
    types = json.texts("layer_types");
    check(static_cast<Index>(types.size()) == c.num_hidden_layers,
          "{}: layer_types names {} layers, but num_hidden_layers is {}", json.where(),
          types.size(), c.num_hidden_layers);
  } else {
    for (Index i = 0; i < c.num_hidden_layers; ++i)
      types.emplace_back(slides(i) ? "sliding_attention" : "full_attention");
  }
  for (const std::string& type : types) {
    const bool sliding = type == "sliding_attention";
    check(sliding || type == "full_attention",
          "{}: layer type \"{}\" is not supported (full_attention, sliding_attention are)",
          json.where(), type);
    check(!sliding || window.has_value(),
          "{}: layer_types has sliding_attention, but the model has no sliding_window",
          json.where());
    check(!sliding || *window > 0, "{}: sliding_window must be positive, not 0", json.where());
    c.sliding_windows.push_back(sliding ? *window : 0);
  }
  if (c.widest_window() == 0) c.sliding_windows.clear();
}

nlohmann::ordered_json layer_types(const ModelConfig& config) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (Index i = 0; i < config.num_hidden_layers; ++i)
    types.push_back(config.sliding_window(i) > 0 ? "sliding_attention" : "full_attention");
  return types;
}

void read_upper_windows(const JsonFields& json, ModelConfig& config) {
  std::optional<Index> window;
  if (json.boolean("use_sliding_window", false))
    window = json.nullable_integer("sliding_window", 4096);
  const Index first = json.integer("max_window_layers", 28);
  read_windows(
      json, window, [&](Index layer) { return window.has_value() && layer >= first; }, config);
}

void write_upper_windows(const ModelConfig& config, nlohmann::ordered_json& json) {
  Index first = 0;
  while (first < config.num_hidden_layers && config.sliding_window(first) == 0) ++first;
  json["use_sliding_window"] = config.widest_window() > 0;
  json["sliding_window"] = window_or_null(config);
  json["max_window_layers"] = first;
  json["layer_types"] = layer_types(config);
}

void read_gguf_upper_windows(const GgufSettings& s, ModelConfig& config) {
  constexpr const char *kWindow = "attention.sliding_window",
                       *kPattern = "attention.sliding_window_pattern";
  if (s.integer(kWindow, 0) > 0 && !s.has(kPattern))
    fail("{}: {} without {}: it is unknown which layers have the window", s.where(), s.key(kWindow),
         s.key(kPattern));
  read_gguf_windows(s, 0, 0, config);
}

void write_gguf_windows(const ModelConfig& c, Index period, GgufSettingsWriter& s) {
  // llama.cpp ends where no layer has a window.
  if (c.widest_window() == 0) s.fail_unsupported("none of its layers has a sliding window");
  s.integer("attention.sliding_window", c.widest_window());
  const auto follows = [&](Index of) {
    for (Index i = 0; i < c.num_hidden_layers; ++i)
      if ((c.sliding_window(i) > 0) != (i % of != of - 1)) return false;
    return true;
  };
  if (follows(period)) return;
  for (Index of = 1; of <= c.num_hidden_layers + 1; ++of)
    if (follows(of)) return s.integer("attention.sliding_window_pattern", of);
  s.fail_unsupported("its local and global layers are not periodic");
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

nlohmann::ordered_json window_or_null(const ModelConfig& config) {
  return config.widest_window() > 0 ? nlohmann::ordered_json(config.widest_window()) : nullptr;
}

std::vector<TensorRule> common_rules(std::vector<TensorRule> norms) {
  std::vector<TensorRule> rules = {{"embed_tokens.weight", "model.embed_tokens.weight"},
                                   {"norm.weight", "model.norm.weight"},
                                   {"lm_head.weight", "lm_head.weight"}};
  for (const char* layer : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                            "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    for (const char* part : {"weight", "bias"}) {
      const std::string name = fmt::format("layers.{{}}.{}.{}", layer, part);
      rules.push_back({name, "model." + name});
    }
  rules.insert(rules.end(), norms.begin(), norms.end());
  return rules;
}

std::vector<TensorRule> norms_before() {
  return {{"layers.{}.input_layernorm.weight", "model.layers.{}.input_layernorm.weight"},
          {"layers.{}.post_attention_layernorm.weight",
           "model.layers.{}.post_attention_layernorm.weight"}};
}

std::vector<TensorRule> norms_after() {
  return {
      {"layers.{}.attention_out_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
      {"layers.{}.mlp_out_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight"}};
}

std::vector<TensorRule> norms_around() {
  std::vector<TensorRule> rules = norms_after();
  rules.push_back({"layers.{}.input_layernorm.weight", "model.layers.{}.input_layernorm.weight"});
  rules.push_back({"layers.{}.post_attention_layernorm.weight",
                   "model.layers.{}.pre_feedforward_layernorm.weight"});
  return rules;
}

std::vector<TensorRule> with_qk_norms(std::vector<TensorRule> rules) {
  rules.push_back({"layers.{}.self_attn.q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"});
  rules.push_back({"layers.{}.self_attn.k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"});
  return rules;
}

}  // namespace focus
