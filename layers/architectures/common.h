#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "layers/family.h"

// What the files of several families share.
namespace focus {

/// hidden_size / num_attention_heads; throws where it is not a whole number.
Index head_dim_of(const JsonFields& json, const ModelConfig& config,
                  const char* width_key = "hidden_size",
                  const char* heads_key = "num_attention_heads");

/// Reports a key of a config.json that its family does not read, where its value is not `used`.
void report_ignored(const JsonFields& json, const char* key, double used);

/// For each layer whether it is not the last of `period`.
std::vector<bool> all_but_every(Index period, Index layers);

/// A soft-cap; null: none.
double read_softcap(const JsonFields& json, const char* key, double otherwise);
/// Gemma: query_pre_attn_scalar, final_logit_softcapping, causal attention only.
void read_gemma(const JsonFields& json, ModelConfig& config);
void write_gemma(const ModelConfig& config, nlohmann::ordered_json& json);
/// Gemma's GGUF files have no key of query_pre_attn_scalar: it is head_dim (0), but in the model of
/// `large_layers` the width over the heads.
double gguf_query_scalar(const ModelConfig& config, Index large_layers);
/// Refuses another.
void check_gguf_query_scalar(const ModelConfig& config, Index large_layers,
                             GgufSettingsWriter& settings);

/// Llama's names, with the norms of a block that `common` has.
std::vector<TensorRule> llama_rules(const ModelConfig& common);

}  // namespace focus
