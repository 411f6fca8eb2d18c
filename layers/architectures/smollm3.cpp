#include "layers/family.h"
#include "layers/gguf_settings.h"

// SmolLM3 (Hugging Face 2025): Llama whose every fourth layer has no rotary embeddings.
namespace focus {
namespace {

constexpr Index kSmolLm3Period = 4;

/// For each layer whether it is not the last of `period`.
std::vector<bool> all_but_every(Index period, Index layers) {
  std::vector<bool> flags;
  for (Index i = 0; i < layers; ++i) flags.push_back(i % period != period - 1);
  return flags;
}

void read_smollm3(const JsonFields& json, ModelConfig& c) {
  if (c.num_hidden_layers > ModelConfig::kMostLayers) return;  // validate() refuses it
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  const Index period = json.integer("no_rope_layer_interval", kSmolLm3Period);
  std::vector<bool> rotary;
  if (json.has("no_rope_layers")) {  // 1: the layer has them
    for (const Index flag : json.integers("no_rope_layers")) rotary.push_back(flag != 0);
    check(rotary.size() >= layers,
          "{}: no_rope_layers names {} layers, but num_hidden_layers is {}", json.where(),
          rotary.size(), layers);
    rotary.resize(layers);
  } else {
    check(period > 0, "{}: no_rope_layer_interval must be positive, not 0", json.where());
    rotary = all_but_every(period, c.num_hidden_layers);
  }
  c.set_rotary_layers(std::move(rotary));
}

void write_smollm3(const ModelConfig& c, nlohmann::ordered_json& json) {
  json["no_rope_layers"] = nlohmann::ordered_json::array();
  for (Index i = 0; i < c.num_hidden_layers; ++i)
    json["no_rope_layers"].push_back(c.is_rotary(i) ? 1 : 0);
}

/// No key gives the layers that rotate: llama.cpp takes every fourth not to.
void read_gguf_smollm3(const GgufSettings&, ModelConfig& c) {
  c.set_rotary_layers(all_but_every(kSmolLm3Period, c.num_hidden_layers));
}

void write_gguf_smollm3(const ModelConfig& c, GgufSettingsWriter& s) {
  ModelConfig usual = c;
  usual.set_rotary_layers(all_but_every(kSmolLm3Period, c.num_hidden_layers));
  if (usual.rotary_layers != c.rotary_layers)
    s.fail_unsupported("other layers than every fourth are without rotary embeddings");
}

}  // namespace

Family smollm3_family() {
  return {.model_type = "smollm3",
          .architecture = "SmolLM3ForCausalLM",
          .common = {.rope = {.theta = 2e6}, .tie_word_embeddings = true},
          .json = {.num_key_value_heads = 4,
                   .max_position_embeddings = 32768,
                   .attention_bias = true,
                   .mlp_bias = true,
                   .pad_token = 128004},
          .windows = {.layers = WindowForm::Layers::unrotated},
          .rotary_period = kSmolLm3Period,
          .read = read_smollm3,
          .write = write_smollm3,
          .gguf = {.architecture = "smollm3",
                   .rotary_pairs = true,
                   .read = read_gguf_smollm3,
                   .write = write_gguf_smollm3}};
}

}  // namespace focus
