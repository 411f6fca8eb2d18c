#include "layers/model_config.h"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "layers/family.h"

namespace focus {
namespace {

void validate_rope(const ModelConfig& c, const std::string& where,
                   const ModelConfig::KeyName& key) {
  if (c.learned_positions) return;
  const RopeConfig& rope = c.rope;
  const RopeConfig& local = c.local_rope ? *c.local_rope : c.rope;
  check(rope.theta > 0, "{}: {} must be positive, not {}", where, key("rope_theta"), rope.theta);
  check(local.theta > 0, "{}: {} must be positive, not {}", where, key("rope_local_base_freq"),
        local.theta);
  check(
      c.rotary_layers.empty() || static_cast<Index>(c.rotary_layers.size()) == c.num_hidden_layers,
      "{}: {} covers {} layers, but there are {}", where, key("no_rope_layers"),
      c.rotary_layers.size(), c.num_hidden_layers);
  using enum RopeConfig::Scaling;
  for (const RopeConfig* each : {&rope, &local}) {
    check(each->scaling == none || each->scaling == linear ||
              each->original_max_position_embeddings > 0,
          "{}: rope scaling: {} must be positive, not 0", where,
          key("original_max_position_embeddings"));
    check(each->factor >= 1 || each->scaling == longrope,
          "{}: rope scaling: {} must be at least 1, not {}", where, key("factor"), each->factor);
    check(each->scaling != dynamic || c.rotary_dim() > 2,
          "{}: rope_type dynamic needs more than 2 rotated values per head", where);
    check(each->scaling != yarn || each->theta != 1, "{}: rope_type yarn needs {} other than 1",
          where, key("rope_theta"));
    check(each->beta_slow > 0 && each->beta_fast >= each->beta_slow,
          "{}: rope scaling: {} {} must be at least {} {} and both positive", where,
          key("beta_fast"), each->beta_fast, key("beta_slow"), each->beta_slow);
    check(each->low_freq_factor > 0 && each->high_freq_factor > each->low_freq_factor,
          "{}: rope scaling: high_freq_factor {} must be above low_freq_factor {} and both "
          "positive",
          where, each->high_freq_factor, each->low_freq_factor);
    check(each->attention_factor >= 1e-3 && each->attention_factor <= 1e3,
          "{}: {} must be from 0.001 to 1000, not {}", where, key("attention_factor"),
          each->attention_factor);
    if (each->scaling != longrope) continue;
    for (const auto& [name, factors] :
         {std::pair{"short_factor", &each->short_factor}, {"long_factor", &each->long_factor}}) {
      check(static_cast<Index>(factors->size()) == c.rotary_dim() / 2,
            "{}: {} must have {} values, half of the rotated width of a head, not {}", where,
            key(name), c.rotary_dim() / 2, factors->size());
      check(std::ranges::all_of(*factors, [](double x) { return x >= 1e-3 && x <= 1e6; }),
            "{}: {} must be numbers from 0.001 to 1e6", where, key(name));
    }
  }
}

/// The first of several names of one activation is written.
constexpr std::pair<const char*, Activation> kActivations[] = {
    {"gelu", Activation::gelu},           {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh}, {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"silu", Activation::silu},           {"swish", Activation::silu}};

}  // namespace

void ModelConfig::validate(const std::string& where, const KeyName& key) const {
  const auto positive = [&](const char* name, Index value, Index most) {
    check(value > 0 && value <= most, "{}: {} must be from 1 to {}, not {}", where, key(name), most,
          value);
  };
  constexpr Index kMostWidth = 1 << 20, kMostPositions = Index{1} << 27;
  positive("vocab_size", vocab_size, 1 << 24);
  positive("hidden_size", hidden_size, kMostWidth);
  positive("intermediate_size", intermediate_size, kMostWidth * 4);
  positive("num_hidden_layers", num_hidden_layers, kMostLayers);
  positive("num_attention_heads", num_attention_heads, kMostWidth);
  positive("num_key_value_heads", num_key_value_heads, num_attention_heads);
  positive("head_dim", head_dim, kMostWidth);
  positive("max_position_embeddings", max_position_embeddings, kMostPositions);
  check(num_attention_heads % num_key_value_heads == 0, "{}: {} {} does not divide {} {}", where,
        key("num_key_value_heads"), num_key_value_heads, key("num_attention_heads"),
        num_attention_heads);
  check(rope.partial_rotary_factor > 0 && rope.partial_rotary_factor <= 1,
        "{}: {} must be in (0, 1], not {}", where, key("partial_rotary_factor"),
        rope.partial_rotary_factor);
  check(learned_positions || (rotary_dim() > 0 && rotary_dim() % 2 == 0),
        "{}: rotary embeddings need an even head_dim, not {} ({} {} of {})", where, rotary_dim(),
        key("partial_rotary_factor"), rope.partial_rotary_factor, head_dim);
  check(norm_eps > 0 && norm_eps < 1, "{}: {} must be in (0, 1), not {}", where, key("norm_eps"),
        norm_eps);
  validate_rope(*this, where, key);
  // Bounds within which float holds the factors made of them.
  const auto none_or_sane = [&](const char* name, double value) {
    check(value == 0 || (value >= 1e-3 && value <= 1e6), "{}: {} must be from 0.001 to 1e6, not {}",
          where, key(name), value);
  };
  none_or_sane("query_pre_attn_scalar", query_pre_attn_scalar);
  none_or_sane("attn_logit_softcapping", attn_logit_softcapping);
  none_or_sane("final_logit_softcapping", final_logit_softcapping);
  none_or_sane("attention_multiplier", attention_multiplier);
  for (const auto& [name, value] : {std::pair{"embedding_multiplier", embedding_multiplier},
                                    {"residual_multiplier", residual_multiplier},
                                    {"logits_scaling", logits_scaling}})
    check(value >= 1e-3 && value <= 1e6, "{}: {} must be from 0.001 to 1e6, not {}", where,
          key(name), value);
  check(sliding_windows.empty() || static_cast<Index>(sliding_windows.size()) == num_hidden_layers,
        "{}: sliding windows for {} layers, but there are {}", where, sliding_windows.size(),
        num_hidden_layers);
  for (const Index window : sliding_windows)
    if (window != 0) {
      positive("sliding_window", window, kMostPositions);
      check(window == widest_window(), "{}: sliding windows of {} and of {} tokens in one model",
            where, window, widest_window());
    }
}

double ModelConfig::attention_scale() const {
  if (attention_multiplier > 0) return attention_multiplier;
  return 1 / std::sqrt(query_pre_attn_scalar > 0 ? query_pre_attn_scalar
                                                 : static_cast<double>(head_dim));
}

Activation activation_named(const std::string& name, const std::string& where) {
  std::vector<const char*> names;
  for (const auto& [known, activation] : kActivations) {
    if (name == known) return activation;
    names.push_back(known);
  }
  throw std::invalid_argument(fmt::format("{}: activation \"{}\" is not supported ({} are)", where,
                                          name, fmt::join(names, ", ")));
}

std::string activation_name(Activation activation) {
  return std::ranges::find(kActivations, activation, &std::pair<const char*, Activation>::second)
      ->first;
}

ModelConfig parse_model_config(const std::string& json_text, const std::string& where) {
  const nlohmann::json json = parse_strict_json(json_text, where);
  check(json.is_object(), "{}: not a JSON object", where);
  const JsonFields fields(json, where);
  const std::string model_type = fields.text("model_type");
  for (const auto& [key, causal] : {std::pair{"use_bidirectional_attention", false},
                                    {"bidirectional", false},
                                    {"is_causal", true}})
    check(fields.boolean(key, causal) == causal,
          "{}: {} is {}, which is not supported: attention here is causal", where, key, !causal);
  check(!fields.has("quantization_config"), "{}: quantised checkpoints are not supported", where);
  const Family& family = find_family(model_type, where);
  ModelConfig config = family.common;
  family.read_json(fields, config);
  // The file has the number of positions beyond which dynamic scaling stretches.
  if (config.rope.scaling == RopeConfig::Scaling::dynamic)
    config.max_position_embeddings = static_cast<Index>(
        config.rope.factor * static_cast<double>(config.rope.original_max_position_embeddings));
  config.model_type = model_type;
  config.vocab_size = fields.integer("vocab_size");
  config.initializer_range = fields.number("initializer_range", config.initializer_range);
  // Either may be a list.
  if (const auto ids = fields.integers("bos_token_id"); !ids.empty()) config.bos_token_id = ids[0];
  config.eos_token_ids = fields.integers("eos_token_id");
  config.validate(where, [&](const std::string& ours) {
    const char* theirs = family.key(ours.c_str());
    return fields.has(theirs) ? theirs : ours;
  });
  return config;
}

std::string write_model_config(const ModelConfig& config) {
  nlohmann::ordered_json json = {{"model_type", config.model_type}};
  json.update(find_family(config.model_type, "model").write_json(config));
  if (config.rope.scaling == RopeConfig::Scaling::dynamic)
    json["max_position_embeddings"] = config.rope.original_max_position_embeddings;
  json["vocab_size"] = config.vocab_size;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  const auto& ends = config.eos_token_ids;
  if (ends.size() == 1) json["eos_token_id"] = ends[0];
  if (ends.size() > 1) json["eos_token_id"] = ends;
  json["dtype"] = "float32";
  return json.dump(2) + "\n";
}

}  // namespace focus
