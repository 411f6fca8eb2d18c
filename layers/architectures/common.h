#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "layers/family.h"

// What the config.json and the tensor names of most families have in common: those of Llama.
namespace focus {

/// What Llama and those are whose config.json says the rest: the defaults of ModelConfig.
ModelConfig llama_form();

/// What a family's config class takes for a key that is absent.
struct KeyDefaults {
  Index num_key_value_heads = 0;  // 0: as many as num_attention_heads
  Index head_dim = 0;             // 0: hidden_size / num_attention_heads
  Index max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  const char* activation_key = "hidden_act";
  bool own_rope = false;  // the family reads its rotary embeddings itself
};

/// Sizes, norm_eps, activation, rope, tie_word_embeddings; the activation and whether the head is
/// tied default to what `config` has. Refuses rotary embeddings of a part of the head.
void read_common(const JsonFields& json, const KeyDefaults& defaults, ModelConfig& config);
/// The same keys in one order; `architecture` is transformers' class.
nlohmann::ordered_json write_common(const char* architecture, const ModelConfig& config);
/// rope_theta and rope_parameters.
void add_rope(const ModelConfig& config, nlohmann::ordered_json& json);
/// rope_theta and the rope_parameters that read_ropes_by_layer reads back.
void add_ropes_by_layer(const ModelConfig& config, nlohmann::ordered_json& json);

/// Gemma's query_pre_attn_scalar.
void read_query_scalar(const JsonFields& json, ModelConfig& config);
/// A soft-cap, where null says that there is none.
double read_softcap(const JsonFields& json, const char* key, double otherwise);
/// Refuses attention that sees later tokens.
void check_causal(const JsonFields& json);
/// What all of Gemma's config.json say, but rotary embeddings.
nlohmann::ordered_json write_gemma(const char* architecture, const ModelConfig& config);

/// hidden_size / num_attention_heads; throws where it is no whole number.
Index head_dim_of(const JsonFields& json, const ModelConfig& config,
                  const char* width_key = "hidden_size",
                  const char* heads_key = "num_attention_heads");

/// Tells where a config.json has a key that its family does not read, with another value than the
/// one that holds.
void pass_over(const JsonFields& json, const char* key, double holds);

/// sliding_windows from layer_types, or by `slides` where the file has none; no `window`: no layer
/// may have one. Throws for layers of another type.
void read_windows(const JsonFields& json, std::optional<Index> window,
                  const std::function<bool(Index layer)>& slides, ModelConfig& config);
/// The layer_types that read_windows reads back.
nlohmann::ordered_json layer_types(const ModelConfig& config);

/// Qwen2 and Qwen3: use_sliding_window says whether the layers from max_window_layers on have it.
void read_upper_windows(const JsonFields& json, ModelConfig& config);
void write_upper_windows(const ModelConfig& config, nlohmann::ordered_json& json);
/// Of a GGUF file. One that says a window and not which layers have it is refused: llama.cpp gives
/// these families none, and their converter writes none.
void read_gguf_upper_windows(const GgufSettings& settings, ModelConfig& config);

/// attention.sliding_window of an architecture whose readers take every `period`-th layer for
/// global unless the file says another period. Refuses models without a window, or where local and
/// global layers follow no period.
void write_gguf_windows(const ModelConfig& config, Index period, GgufSettingsWriter& settings);
/// What Gemma's files mean by no key: query_pre_attn_scalar is head_dim (0), but in the model of
/// `large_layers` the width over the heads. And the refusal of another.
double gguf_query_scalar(const ModelConfig& config, Index large_layers);
void check_gguf_query_scalar(const ModelConfig& config, Index large_layers,
                             GgufSettingsWriter& settings);

/// A window of `config`, or null: what a family that always names it writes.
nlohmann::ordered_json window_or_null(const ModelConfig& config);

/// The names of Llama's parameters but for the norms of the block, then `norms`.
std::vector<TensorRule> common_rules(std::vector<TensorRule> norms);
/// Llama's two norms: before attention and before the MLP.
std::vector<TensorRule> norms_before();
/// OLMo 2's two: after attention and after the MLP.
std::vector<TensorRule> norms_after();
/// Gemma 2's four: before and after each.
std::vector<TensorRule> norms_around();
/// `rules`, and the norms of q and k.
std::vector<TensorRule> with_qk_norms(std::vector<TensorRule> rules);

}  // namespace focus
