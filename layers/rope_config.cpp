#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "data/files/notice.h"
#include "layers/family.h"

namespace focus {

namespace {

/// Pairs that turn more often than beta_fast within the original length are kept, those that turn
/// less often than beta_slow are stretched, those between interpolated (Peng et al. 2023,
/// transformers' "yarn"). The share of pair i that is stretched.
double yarn_ramp(const RopeConfig& rope, Index i, Index rotary_dim) {
  const auto dims = static_cast<double>(rotary_dim);
  const auto pair_of = [&](double turns) {
    const auto length = static_cast<double>(rope.original_max_position_embeddings);
    return dims * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  return std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
}

/// Long waves are stretched by the factor, short ones kept, those between interpolated (Grattafiori
/// et al. 2024, section 4.1; transformers' "llama3"). The share that is kept.
double llama3_share(const RopeConfig& rope, double plain) {
  const double turns =
      static_cast<double>(rope.original_max_position_embeddings) * plain / (2 * std::numbers::pi);
  return std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor),
                    0.0, 1.0);
}

bool says_something(const JsonFields& json, const char* key) {
  return json.has(key) && (!json.is_structured(key) || !json.object(key).keys().empty());
}

/// The object that says how positions are rotated, as transformers chooses it: all of rope_scaling,
/// where it says anything, instead of all of rope_parameters. Null where there is neither.
const char* place_of_rope(const JsonFields& json) {
  const bool scaling = says_something(json, "rope_scaling");
  if (scaling && says_something(json, "rope_parameters") &&
      !json.same("rope_scaling", "rope_parameters"))
    notice("{}: rope_scaling and rope_parameters differ; rope_scaling is used", json.where());
  if (scaling) return "rope_scaling";
  return json.has("rope_parameters") ? "rope_parameters" : nullptr;
}

/// A number of that object goes before the one that the config has under its own key.
void take_number(const JsonFields& config, const char* own_key, const JsonFields& of_object,
                 const char* key, double& number) {
  const double own = number;
  number = of_object.number(key, own);
  if (config.has(own_key) && number != own)
    notice("{}: {} {} differs from {} {} of {}; the latter is used", config.where(), own_key, own,
           key, number, of_object.where());
}

/// From the config itself, otherwise the family's, the object's, or all positions of the model.
Index original_positions(const JsonFields& config, const JsonFields& scaling, const RopeForm& form,
                         Index positions) {
  const char* key = "original_max_position_embeddings";
  auto own = form.by_layer ? std::nullopt : config.optional_integer(key);
  if (!own && form.original > 0) own = form.original;
  const auto inner = scaling.optional_integer(key);
  if (own && inner && *own != *inner)
    notice("{}: {} {} differs from that of {}, {}; the former is used", config.where(), key, *own,
           scaling.where(), *inner);
  if (own) return *own;
  if (inner) return *inner;
  notice("{}: {} is missing; max_position_embeddings is used", scaling.where(), key);
  return positions;
}

void check_flat(const JsonFields& scaling) {
  for (const std::string& key : scaling.keys())
    check(!scaling.is_structured(key.c_str()) || key == "short_factor" || key == "long_factor",
          "{}: {} is not supported: only one rotary embedding for all layers and dimensions is",
          scaling.where(), shown(key));
}

using Scaling = RopeConfig::Scaling;
constexpr std::pair<const char*, Scaling> kScalings[] = {
    {"default", Scaling::none}, {"linear", Scaling::linear}, {"dynamic", Scaling::dynamic},
    {"yarn", Scaling::yarn},    {"llama3", Scaling::llama3}, {"longrope", Scaling::longrope}};

Scaling scaling_named(const JsonFields& scaling, const RopeForm& form) {
  const std::string type = scaling.text(scaling.has("rope_type") ? "rope_type" : "type", "default");
  if (form.yarn_is_longrope && (type == "su" || type == "yarn")) return Scaling::longrope;
  std::vector<const char*> names;
  for (const auto& [name, value] : kScalings) {
    if (type == name) return value;
    names.push_back(name);
  }
  throw std::invalid_argument(fmt::format("{}: rope scaling \"{}\" is not supported ({} are)",
                                          scaling.where(), type, fmt::join(names, ", ")));
}

void read_yarn(const JsonFields& scaling, RopeConfig& rope) {
  const auto or_default = [&](const char* key, double usual) {
    const double given = scaling.number(key, usual);
    return given == 0 ? usual : given;
  };
  rope.beta_fast = or_default("beta_fast", 32);
  rope.beta_slow = or_default("beta_slow", 1);
  rope.truncate = scaling.boolean("truncate", true);
  const double one = scaling.number("mscale", 0), all = scaling.number("mscale_all_dim", 0);
  double usual = yarn_attention_factor(rope.factor);
  if (one != 0 && all != 0)
    usual = yarn_attention_factor(rope.factor, one) / yarn_attention_factor(rope.factor, all);
  rope.attention_factor = scaling.number("attention_factor", usual);
}

void read_scaling(const JsonFields& json, const JsonFields& scaling, const RopeForm& form,
                  Index positions, RopeConfig& rope) {
  rope.scaling = scaling_named(scaling, form);
  if (rope.scaling == Scaling::none) return;
  const bool by_length = rope.scaling == Scaling::yarn || rope.scaling == Scaling::longrope;
  if (by_length || rope.scaling == Scaling::llama3)
    rope.original_max_position_embeddings = original_positions(json, scaling, form, positions);
  if (rope.scaling == Scaling::dynamic) rope.original_max_position_embeddings = positions;
  rope.factor = by_length && !scaling.has("factor")
                    ? static_cast<double>(positions) /
                          static_cast<double>(rope.original_max_position_embeddings)
                    : scaling.number("factor");
  if (rope.scaling == Scaling::llama3) {
    rope.low_freq_factor = scaling.number("low_freq_factor");
    rope.high_freq_factor = scaling.number("high_freq_factor");
  }
  if (rope.scaling == Scaling::yarn) read_yarn(scaling, rope);
  if (rope.scaling == Scaling::longrope) {
    rope.short_factor = scaling.numbers("short_factor");
    rope.long_factor = scaling.numbers("long_factor");
    rope.attention_factor = scaling.number(
        "attention_factor",
        longrope_attention_factor(rope.factor, rope.original_max_position_embeddings));
  }
}

RopeConfig read_rope(const JsonFields& json, const RopeForm& form, const ModelConfig& config) {
  RopeConfig rope = config.rope;
  rope.theta = json.number(form.theta, rope.theta);
  rope.partial_rotary_factor = json.number(form.partial, rope.partial_rotary_factor);
  const char* key = place_of_rope(json);
  if (key == nullptr) return rope;
  const JsonFields scaling = json.object(key);
  check_flat(scaling);
  take_number(json, form.theta, scaling, "rope_theta", rope.theta);
  take_number(json, form.partial, scaling, "partial_rotary_factor", rope.partial_rotary_factor);
  read_scaling(json, scaling, form, config.max_position_embeddings, rope);
  return rope;
}

}  // namespace

double RopeConfig::frequency(Index i, Index rotary_dim, Index seq_len) const {
  const auto dims = static_cast<double>(rotary_dim), power = -2.0 * static_cast<double>(i) / dims;
  const double plain = std::pow(theta, power);
  const Index length = length_class(seq_len);
  switch (scaling) {
    case Scaling::none:
      break;
    case Scaling::linear:
      return plain / factor;
    case Scaling::dynamic: {
      if (length == 0) break;
      // The base grows with the length (transformers' "dynamic", NTK-aware scaling).
      const double longer = factor * static_cast<double>(length) /
                                static_cast<double>(original_max_position_embeddings) -
                            (factor - 1);
      return std::pow(theta * std::pow(longer, dims / (dims - 2)), power);
    }
    case Scaling::yarn: {
      const double stretched = yarn_ramp(*this, i, rotary_dim);
      return plain * (stretched / factor + 1 - stretched);
    }
    case Scaling::llama3: {
      const double kept = llama3_share(*this, plain);
      return plain * ((1 - kept) / factor + kept);
    }
    case Scaling::longrope:
      return plain / (length == 0 ? short_factor : long_factor).at(static_cast<std::size_t>(i));
  }
  return plain;
}

void read_ropes(const JsonFields& json, const RopeForm& form, ModelConfig& config) {
  if (!form.by_layer) {
    config.rope = read_rope(json, form, config);
    return;
  }
  std::optional<JsonFields> global_part, local_part;
  if (says_something(json, "rope_parameters")) {
    const JsonFields all = json.object("rope_parameters");
    if (all.has("full_attention")) global_part.emplace(all.object("full_attention"));
    if (all.has("sliding_attention")) local_part.emplace(all.object("sliding_attention"));
    check(global_part || local_part,
          "{}: must hold full_attention and sliding_attention, each with separate", all.where());
  }
  const auto read = [&](RopeConfig& rope, const JsonFields& scaling) {
    check_flat(scaling);
    rope.theta = scaling.number("rope_theta", rope.theta);
    const double partial = scaling.number("partial_rotary_factor", 1);
    check(partial == 1, "{}: partial_rotary_factor {} is not supported here", scaling.where(),
          partial);
    read_scaling(json, scaling, form, config.max_position_embeddings, rope);
    rope.truncate = true;  // transformers ignores it here
  };
  RopeConfig rope{.theta = json.number("rope_theta", config.rope.theta)};
  RopeConfig local = config.local_rope.value_or(config.rope);
  if (form.local_theta != nullptr) local.theta = json.number(form.local_theta, local.theta);
  if (global_part) read(rope, *global_part);
  if (says_something(json, "rope_scaling")) {
    if (global_part && !json.object("rope_parameters").same("full_attention", "rope_scaling"))
      notice("{}: rope_scaling and rope_parameters differ; rope_scaling is used", json.where());
    read(rope, json.object("rope_scaling"));
  }
  if (local_part) read(local, *local_part);
  config.rope = rope;
  config.local_rope.reset();
  if (local != rope) config.local_rope = local;
}

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double longrope_attention_factor(double factor, Index original_positions) {
  const auto original = static_cast<double>(original_positions);
  return factor > 1 && original > 1 ? std::sqrt(1 + std::log(factor) / std::log(original)) : 1;
}

bool same_angles(const ModelConfig& config, Index length, Index other_length) {
  const auto same = [&](const RopeConfig& rope) {
    return rope.length_class(length) == rope.length_class(other_length);
  };
  return config.learned_positions ||
         (same(config.rope) && (!config.local_rope || same(*config.local_rope)));
}

nlohmann::ordered_json write_rope(const RopeConfig& rope) {
  nlohmann::ordered_json json = {{"rope_type", "default"}, {"rope_theta", rope.theta}};
  if (rope.partial_rotary_factor != 1) json["partial_rotary_factor"] = rope.partial_rotary_factor;
  if (rope.scaling == Scaling::none) return json;
  json["rope_type"] =
      std::ranges::find(kScalings, rope.scaling, &std::pair<const char*, Scaling>::second)->first;
  json["factor"] = rope.factor;
  if (rope.scaling == Scaling::llama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.scaling == Scaling::yarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    if (!rope.truncate) json["truncate"] = false;
  }
  if (rope.scaling == Scaling::longrope) {
    json["short_factor"] = rope.short_factor;
    json["long_factor"] = rope.long_factor;
  }
  if (rope.scaling == Scaling::yarn || rope.scaling == Scaling::longrope)
    json["attention_factor"] = rope.attention_factor;
  if (rope.scaling != Scaling::linear && rope.scaling != Scaling::dynamic)
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  return json;
}

}  // namespace focus
