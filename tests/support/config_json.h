#pragma once

#include <nlohmann/json.hpp>

#include "layers/model_config.h"

// Files of config.json, to be changed by tests, and how they are read.
namespace focus {

using Json = nlohmann::json;

inline Json gpt2_json() {
  return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_embd", 768},
          {"n_layer", 12},        {"n_head", 12},        {"n_positions", 1024}};
}
inline Json llama_json() {
  return {{"model_type", "llama"},    {"vocab_size", 32000},    {"hidden_size", 64},
          {"intermediate_size", 172}, {"num_hidden_layers", 5}, {"num_attention_heads", 8},
          {"num_key_value_heads", 4}, {"rms_norm_eps", 1e-5},   {"max_position_embeddings", 512}};
}
/// What every family but GPT-2 and Llama needs to say; all else is left to its defaults.
inline Json short_json(const std::string& model_type) {
  return {{"model_type", model_type}, {"vocab_size", 99},       {"hidden_size", 48},
          {"intermediate_size", 80},  {"num_hidden_layers", 4}, {"num_attention_heads", 8}};
}
inline ModelConfig parse(const std::string& text) {
  return parse_model_config(text, "some/config.json");
}
inline ModelConfig parse(const Json& json) {
  return parse_model_config(json.dump(), "some/config.json");
}

}  // namespace focus
