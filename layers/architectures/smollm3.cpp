#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// SmolLM3 (Hugging Face 2025): Llama whose every fourth layer has no rotary embeddings.
namespace focus {
namespace {

constexpr Index kSmolLm3Interval = 4;       // of layers without rotary embeddings
constexpr Index kSmolLm3PadToken = 128004;  // what transformers takes where none is said

bool smollm3_rotates(Index layer) { return layer % kSmolLm3Interval != kSmolLm3Interval - 1; }

/// What its models are, whatever their size.
ModelConfig smollm3_form() {
  ModelConfig c;
  c.tie_word_embeddings = true;
  c.rope.theta = 2e6;
  return c;
}

void read_rotary_layers(const JsonFields& json, ModelConfig& c) {
  if (c.num_hidden_layers > ModelConfig::kMostLayers) return;  // validate() says so
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  std::vector<bool> rotary;
  if (json.has("no_rope_layers")) {  // 1: the layer has them
    for (const Index flag : json.integers("no_rope_layers")) rotary.push_back(flag != 0);
    check(rotary.size() >= layers,
          "{}: no_rope_layers names {} layers, but num_hidden_layers is {}", json.where(),
          rotary.size(), layers);
    rotary.resize(layers);
  } else {
    const Index interval = json.integer("no_rope_layer_interval", kSmolLm3Interval);
    check(interval > 0, "{}: no_rope_layer_interval must be positive, not 0", json.where());
    for (Index i = 0; i < c.num_hidden_layers; ++i) rotary.push_back((i + 1) % interval != 0);
  }
  c.set_rotary_layers(std::move(rotary));
}

void read_smollm3(const JsonFields& json, ModelConfig& c) {
  read_common(json, {.num_key_value_heads = 4, .max_position_embeddings = 32768}, c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  c.mlp_bias = json.boolean("mlp_bias", false);
  read_rotary_layers(json, c);
  std::optional<Index> window;
  if (json.boolean("use_sliding_window", false)) window = json.optional_integer("sliding_window");
  read_windows(
      json, window, [&](Index layer) { return window.has_value() && !c.is_rotary(layer); }, c);
}

nlohmann::ordered_json write_smollm3(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("SmolLM3ForCausalLM", c);
  if (c.vocab_size <= kSmolLm3PadToken) json["pad_token_id"] = nullptr;
  json["attention_bias"] = c.attention_bias;
  json["mlp_bias"] = c.mlp_bias;
  json["no_rope_layers"] = nlohmann::ordered_json::array();
  for (Index i = 0; i < c.num_hidden_layers; ++i)
    json["no_rope_layers"].push_back(c.is_rotary(i) ? 1 : 0);
  json["use_sliding_window"] = c.widest_window() > 0;
  json["sliding_window"] = window_or_null(c);
  json["layer_types"] = layer_types(c);
  add_rope(c, json);
  return json;
}

std::vector<bool> usual_rotary_layers(const ModelConfig& c) {
  std::vector<bool> rotary;
  for (Index i = 0; i < c.num_hidden_layers; ++i) rotary.push_back(smollm3_rotates(i));
  return rotary;
}

/// No key says which layers rotate: llama.cpp takes every fourth not to.
void read_gguf_smollm3(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  c.mlp_bias = s.tensor("blk.0.ffn_up.bias") != nullptr;
  c.set_rotary_layers(usual_rotary_layers(c));
}

void write_gguf_smollm3(const ModelConfig& c, GgufSettingsWriter& s) {
  ModelConfig usual = c;
  usual.set_rotary_layers(usual_rotary_layers(c));
  if (usual.rotary_layers != c.rotary_layers)
    s.fail_unsupported("other layers than every fourth are without rotary embeddings");
  if (c.widest_window() > 0) s.fail_unsupported("it has sliding windows");
}

}  // namespace

const Family& smollm3_family() {
  static const Family family = {
      .model_type = "smollm3",
      .base_prefix = "model.",
      .common = smollm3_form(),
      .read = read_smollm3,
      .write = write_smollm3,
      .rules = common_rules(norms_before()),
      .ignored = {".rotary_emb.inv_freq"},
      .rotates = smollm3_rotates,
      .gguf = {.architecture = "smollm3",
               .rotary_pairs = true,
               .read = read_gguf_smollm3,
               .write = write_gguf_smollm3},
  };
  return family;
}

}  // namespace focus
