#include "layers/architectures/common.h"
#include "layers/architectures/families.h"
#include "layers/gguf_export.h"
#include "layers/gguf_settings.h"

// Phi-3 and Phi-4-mini (Abdin et al. 2024): Llama with q, k and v in one matrix, gate and up in
// one, rotary embeddings of a part of each head, and longrope.
namespace focus {
namespace {

constexpr Index kPhi3Positions = 4096;
constexpr Index kPhi3PadToken = 32000;  // what transformers takes where none is said

bool phi3_slides(Index) { return true; }

void read_phi3(const JsonFields& json, ModelConfig& c) {
  read_common(json, {.max_position_embeddings = 4096, .rms_norm_eps = 1e-5, .own_rope = true}, c);
  c.rope = read_rope(json, c, {.original = kPhi3Positions, .yarn_is_longrope = true});
  check(c.rope.scaling == RopeConfig::Scaling::none ||
            c.rope.scaling == RopeConfig::Scaling::longrope,
        "{}: phi3 supports only rope_type default or longrope", json.where());
  const std::optional<Index> window = json.optional_integer("sliding_window");
  read_windows(
      json, window, [&](Index) { return window.has_value(); }, c);
}

nlohmann::ordered_json write_phi3(const ModelConfig& c) {
  nlohmann::ordered_json json = write_common("Phi3ForCausalLM", c);
  if (c.vocab_size <= kPhi3PadToken) json["pad_token_id"] = nullptr;
  json["sliding_window"] = window_or_null(c);
  json["partial_rotary_factor"] = c.rope.partial_rotary_factor;
  if (c.rope.scaling == RopeConfig::Scaling::longrope)
    json["original_max_position_embeddings"] = c.rope.original_max_position_embeddings;
  add_rope(c, json);
  return json;
}

std::vector<TensorRule> phi3_rules() {
  const std::string ours = "layers.{}.", theirs = "model.layers.{}.";
  std::vector<TensorRule> rules = {{"embed_tokens.weight", "model.embed_tokens.weight"},
                                   {"norm.weight", "model.norm.weight"},
                                   {"lm_head.weight", "lm_head.weight"}};
  for (const std::string same :
       {"self_attn.o_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"})
    rules.push_back({ours + same + ".weight", theirs + same + ".weight"});
  const auto fused = [&](std::initializer_list<const char*> parts, const char* whole) {
    int number = 0;
    for (const char* part : parts)
      rules.push_back({.ours = ours + part + ".weight",
                       .theirs = theirs + whole + ".weight",
                       .part = number++,
                       .parts = static_cast<int>(parts.size())});
  };
  fused({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, "self_attn.qkv_proj");
  fused({"mlp.gate_proj", "mlp.up_proj"}, "mlp.gate_up_proj");
  return rules;
}

void read_gguf_phi3(const GgufSettings& s, ModelConfig& c) {
  if (c.rope.scaling != RopeConfig::Scaling::none &&
      c.rope.scaling != RopeConfig::Scaling::longrope)
    fail("{}: {}: phi3 supports only longrope scaling, or none", s.where(),
         s.key("rope.scaling.type"));
  read_gguf_windows(s, 0, 0, c);
}

void write_gguf_phi3(const ModelConfig& c, GgufSettingsWriter& s) {
  if (c.widest_window() > 0) s.integer("attention.sliding_window", c.widest_window());
}

}  // namespace

const Family& phi3_family() {
  static const Family family = {
      .model_type = "phi3",
      .base_prefix = "model.",
      .common = llama_form(),
      .read = read_phi3,
      .write = write_phi3,
      .rules = phi3_rules(),
      .ignored = {".rotary_emb.inv_freq"},
      .slides = phi3_slides,
      .gguf = {.architecture = "phi3",
               .longrope = true,
               .partial_rotary = true,
               .read = read_gguf_phi3,
               .write = write_gguf_phi3},
  };
  return family;
}

}  // namespace focus
