#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// OLMo 3 (OLMo et al. 2025): OLMo 2 with three local layers to a global one; rotary embeddings are
// stretched in global layers alone.
namespace focus {
namespace {

constexpr Index kOlmo3Period = 4;  // of local and global layers
constexpr double kOlmo3Theta = 5e5;

/// What its models are, whatever their size.
ModelConfig olmo3_form() {
  ModelConfig c;
  c.norm_before = false;
  c.norm_after = true;
  c.qk_norm = QkNorm::full_width;
  c.rope.theta = kOlmo3Theta;
  return c;
}

/// The last of every four layers is global.
bool olmo3_slides(Index layer) { return layer % kOlmo3Period != kOlmo3Period - 1; }

void read_olmo3(const JsonFields& json, ModelConfig& c) {
  read_common(json, {.rms_norm_eps = 1e-5, .own_rope = true}, c);
  read_ropes_by_layer(json, kOlmo3Theta, kOlmo3Theta, nullptr, c);
  c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  read_windows(json, json.nullable_integer("sliding_window", 4096), olmo3_slides, c);
}

nlohmann::ordered_json write_olmo3(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("Olmo3ForCausalLM", c);
  json["attention_bias"] = c.attention_bias;
  json["sliding_window"] = window_or_null(c);
  json["layer_types"] = layer_types(c);
  add_ropes_by_layer(c, json);
  return json;
}

/// llama.cpp's converter calls it olmo2: a file of that architecture that says a window is OLMo
/// 3's.
void read_gguf_olmo3(const GgufSettings& s, ModelConfig& c) {
  read_gguf_attention_biases(s, c);
  read_gguf_windows(s, 0, kOlmo3Period, c);
  read_gguf_local_rope(s, c.rope.theta, c);
}

void write_gguf_olmo3(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.widest_window() == 0) s.fail_unsupported("none of its layers has a sliding window");
  const RopeConfig& local = c.local_rope ? *c.local_rope : c.rope;
  if (local.scaling != RopeConfig::Scaling::none || local.theta != c.rope.theta)
    s.fail_unsupported("its local layers have a different rope_theta, or separate scaling");
  write_gguf_upper_windows(c, s);
}

}  // namespace

const Family& olmo3_family() {
  static const Family family = {
      .model_type = "olmo3",
      .base_prefix = "model.",
      .common = olmo3_form(),
      .read = read_olmo3,
      .write = write_olmo3,
      .rules = common_rules(with_qk_norms(norms_after())),
      .ignored = {".rotary_emb.inv_freq"},
      .slides = olmo3_slides,
      .gguf = {.architecture = "olmo2",
               .has_window = true,
               .attends_in_windows = true,
               .read = read_gguf_olmo3,
               .write = write_gguf_olmo3},
  };
  return family;
}

}  // namespace focus
