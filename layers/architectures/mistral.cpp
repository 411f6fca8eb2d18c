#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// Mistral (Jiang et al. 2023): Llama with a sliding window in every layer, or in none.
namespace focus {
namespace {

bool mistral_slides(Index) { return true; }

void read_mistral(const JsonFields& json, ModelConfig& c) {
  read_common(json, {.num_key_value_heads = 8, .max_position_embeddings = 131072}, c);
  const std::optional<Index> window = json.nullable_integer("sliding_window", 4096);
  read_windows(
      json, window, [&](Index) { return window.has_value(); }, c);
  const auto sliding = std::ranges::count_if(c.sliding_windows, [](Index w) { return w > 0; });
  check(!json.has("layer_types") || sliding == (window ? c.num_hidden_layers : 0),
        "{}: layer_types differ between layers or from sliding_window: transformers uses one "
        "window for all layers of a mistral",
        json.where());
}

nlohmann::ordered_json write_mistral(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("MistralForCausalLM", c);
  json["sliding_window"] = window_or_null(c);
  add_rope(c, json);
  return json;
}

/// llama.cpp's converter calls it llama, and leaves out the window: a file that says one is
/// Mistral's.
void read_gguf_mistral(const GgufSettings& s, ModelConfig& c) { read_gguf_windows(s, 0, 0, c); }

void write_gguf_mistral(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.widest_window() > 0) s.integer("attention.sliding_window", c.widest_window());
}

}  // namespace

const Family& mistral_family() {
  static const Family family = {
      .model_type = "mistral",
      .base_prefix = "model.",
      .common = llama_form(),
      .read = read_mistral,
      .write = write_mistral,
      .rules = common_rules(norms_before()),
      .ignored = {".rotary_emb.inv_freq"},
      .slides = mistral_slides,
      .gguf = {.architecture = "llama",
               .rotary_pairs = true,
               .has_window = true,
               .rope_factors = true,
               .read = read_gguf_mistral,
               .write = write_gguf_mistral},
  };
  return family;
}

}  // namespace focus
