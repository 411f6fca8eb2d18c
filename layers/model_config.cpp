#include "layers/model_config.h"

#include <array>
#include <nlohmann/json.hpp>

#include "layers/family.h"

namespace focus {

void ModelConfig::validate(const std::string& where) const {
  const auto positive = [&](const char* key, Index value, Index most) {
    check(value > 0 && value <= most, "{}: {} must be from 1 to {}, not {}", where, key, most,
          value);
  };
  constexpr Index kMostWidth = 1 << 20, kMostLayers = 4096, kMostPositions = Index{1} << 27;
  positive("vocab_size", vocab_size, 1 << 24);
  positive("hidden_size", hidden_size, kMostWidth);
  positive("intermediate_size", intermediate_size, kMostWidth * 4);
  positive("num_hidden_layers", num_hidden_layers, kMostLayers);
  positive("num_attention_heads", num_attention_heads, kMostWidth);
  positive("num_key_value_heads", num_key_value_heads, num_attention_heads);
  positive("head_dim", head_dim, kMostWidth);
  positive("max_position_embeddings", max_position_embeddings, kMostPositions);
  check(num_attention_heads % num_key_value_heads == 0,
        "{}: num_key_value_heads {} does not divide num_attention_heads {}", where,
        num_key_value_heads, num_attention_heads);
  check(learned_positions || head_dim % 2 == 0,
        "{}: rotary embeddings need an even head_dim, not {}", where, head_dim);
  check(norm_eps > 0 && norm_eps < 1, "{}: the norms' epsilon must be in (0, 1), not {}", where,
        norm_eps);
  check(rope.theta > 0, "{}: rope_theta must be positive, not {}", where, rope.theta);
}

Activation activation_named(const std::string& name, const std::string& where) {
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "silu" || name == "swish") return Activation::silu;
  check(false,
        "{}: activation \"{}\" is not supported (gelu, gelu_new, gelu_pytorch_tanh, silu are)",
        where, name);
  return {};
}

std::string activation_name(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_new";
    case Activation::silu:
      break;
  }
  return "silu";
}

namespace {

/// Newer files may list several: the first is the one.
std::optional<Index> read_token(const JsonFields& fields, const nlohmann::json& json,
                                const char* key) {
  if (!fields.has(key) || !json[key].is_array()) return fields.optional_integer(key);
  const nlohmann::json first = {{key, json[key].empty() ? nlohmann::json() : json[key].front()}};
  return JsonFields(first, fields.where()).optional_integer(key);
}

}  // namespace

RopeConfig read_rope(const JsonFields& json) {
  RopeConfig rope;
  rope.theta = json.number("rope_theta", rope.theta);
  const char* key = json.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!json.has(key)) return rope;
  const JsonFields scaling = json.object(key);
  rope.theta = scaling.number("rope_theta", rope.theta);
  const std::string type = scaling.text(scaling.has("rope_type") ? "rope_type" : "type", "default");
  if (type == "default") return rope;
  check(type == "linear" || type == "llama3",
        "{}: rope scaling \"{}\" is not supported (default, linear, llama3 are)", scaling.where(),
        type);
  rope.factor = scaling.number("factor");
  check(rope.factor >= 1, "{}: factor must be at least 1, not {}", scaling.where(), rope.factor);
  rope.scaling = RopeConfig::Scaling::linear;
  if (type == "linear") return rope;
  rope.scaling = RopeConfig::Scaling::llama3;
  rope.low_freq_factor = scaling.number("low_freq_factor");
  rope.high_freq_factor = scaling.number("high_freq_factor");
  rope.original_max_position_embeddings = scaling.integer("original_max_position_embeddings");
  check(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor,
        "{}: high_freq_factor {} must be above low_freq_factor {} and both positive",
        scaling.where(), rope.high_freq_factor, rope.low_freq_factor);
  return rope;
}

std::span<const Family* const> families() {
  static const std::array<const Family*, 2> all = {&gpt2_family(), &llama_family()};
  return all;
}

const Family& find_family(const std::string& model_type, const std::string& where) {
  std::string known;
  for (const Family* family : families()) {
    if (family->model_type == model_type) return *family;
    known += (known.empty() ? "" : ", ") + family->model_type;
  }
  check(false, "{}: model_type \"{}\" is not supported ({} are)", where, model_type, known);
  return gpt2_family();
}

ModelConfig parse_model_config(const std::string& json_text, const std::string& where) {
  const nlohmann::json json = parse_strict_json(json_text, where);
  check(json.is_object(), "{}: not a JSON object", where);
  const JsonFields fields(json, where);
  const std::string model_type = fields.text("model_type");
  check(!fields.has("quantization_config"), "{}: quantised checkpoints are not supported", where);
  const auto& read = find_family(model_type, where).read;
  ModelConfig config = read(fields);
  config.model_type = model_type;
  config.vocab_size = fields.integer("vocab_size");
  config.initializer_range = fields.number("initializer_range", config.initializer_range);
  config.bos_token_id = read_token(fields, json, "bos_token_id");
  config.eos_token_id = read_token(fields, json, "eos_token_id");
  check(fields.has("head_dim") || config.num_attention_heads <= 0 ||
            config.hidden_size % config.num_attention_heads == 0,
        "{}: the number of heads {} does not divide the width {}", where,
        config.num_attention_heads, config.hidden_size);
  config.validate(where);
  return config;
}

std::string write_model_config(const ModelConfig& config) {
  nlohmann::ordered_json json = {{"model_type", config.model_type}};
  json.update(find_family(config.model_type, "model").write(config));
  json["vocab_size"] = config.vocab_size;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  if (config.eos_token_id) json["eos_token_id"] = *config.eos_token_id;
  json["dtype"] = "float32";
  return json.dump(2) + "\n";
}

}  // namespace focus
