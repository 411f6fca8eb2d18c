#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "data/files/notice.h"
#include "layers/family.h"

namespace focus {

double RopeConfig::frequency(Index i, Index rotary_dim) const {
  const double plain =
      std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
  if (scaling == Scaling::none) return plain;
  if (scaling == Scaling::linear) return plain / factor;
  // Long waves are stretched by `factor`, short ones kept, those between interpolated (Grattafiori
  // et al. 2024, section 4.1; transformers' "llama3").
  const double turns =
      static_cast<double>(original_max_position_embeddings) * plain / (2 * std::numbers::pi);
  const double smooth =
      std::clamp((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0, 1.0);
  return plain * ((1 - smooth) / factor + smooth);
}

namespace {

bool says_something(const JsonFields& json, const char* key) {
  return json.has(key) && (!json.is_structured(key) || !json.object(key).keys().empty());
}

/// The object that says how positions are rotated, as transformers chooses it: all of rope_scaling,
/// where it says anything, instead of all of rope_parameters. Null where there is neither.
const char* place_of_rope(const JsonFields& json) {
  const bool scaling = says_something(json, "rope_scaling");
  if (scaling && says_something(json, "rope_parameters") &&
      !json.same("rope_scaling", "rope_parameters"))
    notice("{}: rope_scaling and rope_parameters differ; rope_scaling holds", json.where());
  if (scaling) return "rope_scaling";
  return json.has("rope_parameters") ? "rope_parameters" : nullptr;
}

/// A number of that object goes before the one that the config has under its own key.
void take_number(const JsonFields& config, const char* own_key, const JsonFields& of_object,
                 const char* key, double& number) {
  const double own = number;
  number = of_object.number(key, own);
  if (config.has(own_key) && number != own)
    notice("{}: {} {} is not the {} {} of {}; the latter holds", config.where(), own_key, own, key,
           number, of_object.where());
}

/// Llama 3's: from the config itself, else from the object, else all positions.
Index original_positions(const JsonFields& config, const JsonFields& scaling) {
  const char* key = "original_max_position_embeddings";
  const auto own = config.optional_integer(key), inner = scaling.optional_integer(key);
  if (own && inner && *own != *inner)
    notice("{}: {} {} is not that of {}, {}; the former holds", config.where(), key, *own,
           scaling.where(), *inner);
  if (own) return *own;
  if (inner || !config.has("max_position_embeddings")) return scaling.integer(key);
  notice("{}: {} is missing; max_position_embeddings holds", scaling.where(), key);
  return config.integer("max_position_embeddings");
}

void check_flat(const JsonFields& scaling) {
  for (const std::string& entry : scaling.keys())
    check(!scaling.is_structured(entry.c_str()),
          "{}: {} is not supported: one rotary embedding for all layers and dimensions is",
          scaling.where(), shown(entry));
}

}  // namespace

RopeConfig read_rope(const JsonFields& json, RopeConfig otherwise, const RopeKeys& keys) {
  RopeConfig rope = otherwise;
  rope.theta = json.number(keys.theta, rope.theta);
  rope.partial_rotary_factor = json.number(keys.partial, rope.partial_rotary_factor);
  const char* key = place_of_rope(json);
  if (key == nullptr) return rope;
  const JsonFields scaling = json.object(key);
  check_flat(scaling);
  take_number(json, keys.theta, scaling, "rope_theta", rope.theta);
  take_number(json, keys.partial, scaling, "partial_rotary_factor", rope.partial_rotary_factor);
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
  rope.original_max_position_embeddings = original_positions(json, scaling);
  check(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor,
        "{}: high_freq_factor {} must be above low_freq_factor {} and both positive",
        scaling.where(), rope.high_freq_factor, rope.low_freq_factor);
  return rope;
}

nlohmann::ordered_json write_rope(const RopeConfig& rope) {
  nlohmann::ordered_json json = {{"rope_type", "default"}, {"rope_theta", rope.theta}};
  if (rope.partial_rotary_factor != 1) json["partial_rotary_factor"] = rope.partial_rotary_factor;
  if (rope.scaling == RopeConfig::Scaling::none) return json;
  json["rope_type"] = rope.scaling == RopeConfig::Scaling::linear ? "linear" : "llama3";
  json["factor"] = rope.factor;
  if (rope.scaling == RopeConfig::Scaling::linear) return json;
  json["low_freq_factor"] = rope.low_freq_factor;
  json["high_freq_factor"] = rope.high_freq_factor;
  json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  return json;
}

}  // namespace focus
