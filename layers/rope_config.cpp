#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

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

RopeConfig read_rope(const JsonFields& json, RopeConfig otherwise) {
  RopeConfig rope = otherwise;
  rope.theta = json.number("rope_theta", rope.theta);
  rope.partial_rotary_factor = json.number("partial_rotary_factor", rope.partial_rotary_factor);
  const char* key = json.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!json.has(key)) return rope;
  const JsonFields scaling = json.object(key);
  for (const std::string& entry : scaling.keys())
    check(!scaling.is_structured(entry.c_str()),
          "{}: {} is not supported: one rotary embedding for all layers and dimensions is",
          scaling.where(), shown(entry));
  rope.theta = scaling.number("rope_theta", rope.theta);
  rope.partial_rotary_factor = scaling.number("partial_rotary_factor", rope.partial_rotary_factor);
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
