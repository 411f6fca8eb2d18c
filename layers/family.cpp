#include "layers/family.h"

#include "layers/gguf_settings.h"

// How the parts of a Family that are data are read and written, in config.json and in GGUF files.
namespace focus {
namespace {

using Layers = WindowForm::Layers;

/// hidden_size / num_attention_heads; throws where it is not a whole number.
Index head_dim_of(const Family& family, const JsonFields& json, const ModelConfig& c) {
  if (c.num_attention_heads <= 0) return 0;  // validate() says which key is wrong
  check(c.hidden_size % c.num_attention_heads == 0, "{}: {} {} does not divide {} {}", json.where(),
        family.key("num_attention_heads"), c.num_attention_heads, family.key("hidden_size"),
        c.hidden_size);
  return c.hidden_size / c.num_attention_heads;
}

void read_sizes(const Family& family, const JsonFields& json, ModelConfig& c) {
  const JsonForm& form = family.json;
  const auto size = [&](const char* ours, bool may_lack = false, Index otherwise = 0) {
    const char* key = family.key(ours);
    return may_lack ? json.integer(key, otherwise) : json.integer(key);
  };
  c.hidden_size = size("hidden_size");
  c.intermediate_size =
      size("intermediate_size", form.inner_factor > 0, form.inner_factor * c.hidden_size);
  c.num_hidden_layers = size("num_hidden_layers");
  c.num_attention_heads = c.num_key_value_heads = size("num_attention_heads");
  c.max_position_embeddings = size("max_position_embeddings", form.max_position_embeddings > 0,
                                   form.max_position_embeddings);
  if (!form.grouped_heads) {
    c.head_dim = head_dim_of(family, json, c);
    json.report_ignored("head_dim", static_cast<double>(c.head_dim));
  } else {
    const auto given = json.nullable_integer("num_key_value_heads", form.num_key_value_heads);
    if (json.has("num_key_value_heads") || given.value_or(0) > 0) c.num_key_value_heads = *given;
    const bool derived = form.head_dim == 0 && !json.has("head_dim");
    c.head_dim = derived ? head_dim_of(family, json, c) : json.integer("head_dim", form.head_dim);
  }
  c.norm_eps = json.number(family.key("norm_eps"), form.norm_eps);
  if (json.has(form.activation_key))
    c.activation = activation_named(json.text(form.activation_key), json.where());
  c.tie_word_embeddings = json.boolean("tie_word_embeddings", c.tie_word_embeddings);
  if (form.attention_bias)
    c.attention_bias = c.attention_out_bias = json.boolean("attention_bias", false);
  if (form.mlp_bias) c.mlp_bias = json.boolean("mlp_bias", false);
}

/// sliding_windows from layer_types, or by the family's form where the file has none.
void read_windows(const WindowForm& form, const JsonFields& json, ModelConfig& c) {
  if (form.layers == Layers::none) return;
  c.sliding_windows.clear();
  std::optional<Index> window;
  if (!form.has_switch() || json.boolean("use_sliding_window", false))
    window = json.nullable_integer("sliding_window", form.width);
  Index first = 0, period = form.period;
  if (form.layers == Layers::upper) first = json.integer("max_window_layers", 28);
  if (form.pattern_key) {
    period = json.integer("sliding_window_pattern", period);
    check(period > 0, "{}: sliding_window_pattern must be positive, not 0", json.where());
  }
  // An absurd count is refused by validate(), before anything of that size is made.
  if (c.num_hidden_layers > ModelConfig::kMostLayers) return;
  const auto slides = [&](Index layer) {
    if (form.layers == Layers::periodic) return layer % period != period - 1;
    if (form.layers == Layers::unrotated && c.is_rotary(layer)) return false;
    return window.has_value() && layer >= first;
  };
  std::vector<std::string> types;
  if (json.has("layer_types")) {
    types = json.texts("layer_types");
    check(static_cast<Index>(types.size()) == c.num_hidden_layers,
          "{}: layer_types names {} layers, but num_hidden_layers is {}", json.where(),
          types.size(), c.num_hidden_layers);
  } else {
    for (Index i = 0; i < c.num_hidden_layers; ++i)
      types.emplace_back(slides(i) ? "sliding_attention" : "full_attention");
  }
  for (const std::string& type : types) {
    const bool sliding = type == "sliding_attention";
    check(sliding || type == "full_attention",
          "{}: layer type \"{}\" is not supported (full_attention, sliding_attention are)",
          json.where(), type);
    check(!sliding || window.has_value(),
          "{}: layer_types has sliding_attention, but the model has no sliding_window",
          json.where());
    check(!sliding || *window > 0, "{}: sliding_window must be positive, not 0", json.where());
    check(!form.uniform || sliding == window.has_value(),
          "{}: layer_types differ between layers or from sliding_window: transformers uses one "
          "window for all layers of this model_type",
          json.where());
    c.sliding_windows.push_back(sliding ? *window : 0);
  }
  if (c.widest_window() == 0) c.sliding_windows.clear();
}

void write_windows(const WindowForm& form, const ModelConfig& c, nlohmann::ordered_json& json) {
  if (form.layers == Layers::none) return;
  if (form.has_switch()) json["use_sliding_window"] = c.widest_window() > 0;
  json["sliding_window"] = nullptr;
  if (c.widest_window() > 0) json["sliding_window"] = c.widest_window();
  if (form.layers == Layers::upper) {
    Index first = 0;
    while (first < c.num_hidden_layers && c.sliding_window(first) == 0) ++first;
    json["max_window_layers"] = first;
  }
  if (form.layers == Layers::all) return;
  json["layer_types"] = nlohmann::ordered_json::array();
  for (Index i = 0; i < c.num_hidden_layers; ++i)
    json["layer_types"].push_back(c.sliding_window(i) > 0 ? "sliding_attention" : "full_attention");
}

const RopeConfig& local_rope_of(const ModelConfig& c) {
  return c.local_rope ? *c.local_rope : c.rope;
}

void write_ropes(const RopeForm& form, const ModelConfig& c, nlohmann::ordered_json& json) {
  if (form.partial_heads) json[form.partial] = c.rope.partial_rotary_factor;
  if (form.original > 0 && c.rope.scaling == RopeConfig::Scaling::longrope)
    json["original_max_position_embeddings"] = c.rope.original_max_position_embeddings;
  if (form.local_theta != nullptr) json[form.local_theta] = local_rope_of(c).theta;
  json[form.theta] = c.rope.theta;
  json["rope_parameters"] = write_rope(c.rope);
  if (form.by_layer)
    json["rope_parameters"] = {{"full_attention", write_rope(c.rope)},
                               {"sliding_attention", write_rope(local_rope_of(c))}};
}

/// Sliding windows by attention.sliding_window and its pattern; `window` where the file says none
/// and 0 means none. `period`: every so manieth layer has none where the file has no pattern; 0:
/// all have one.
void read_gguf_windows(const GgufSettings& s, Index window, Index period, ModelConfig& c) {
  window = s.integer("attention.sliding_window", window);
  if (window == 0) return;
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const std::string key = s.key(kPattern);
  std::vector<bool> local(c.num_hidden_layers, true);
  if (s.source().metadata().is_array(key)) {
    const std::size_t layers = local.size();
    local = *s.source().metadata().flags(key);
    if (local.size() != layers)
      fail("{}: {} has {} values for {} layers", s.where(), key, local.size(), layers);
  } else {
    period = s.integer(kPattern, period);
    for (std::size_t i = 0; i < local.size(); ++i)
      local[i] = period == 0 || static_cast<Index>(i) % period != period - 1;
  }
  for (const bool slides : local) c.sliding_windows.push_back(slides ? window : 0);
  if (c.widest_window() == 0) c.sliding_windows.clear();
}

/// attention.sliding_window, and its pattern where it is not the `period` that readers assume.
/// Refuses local and global layers that follow no period.
void write_gguf_periodic(const ModelConfig& c, Index period, GgufSettingsWriter& s) {
  s.integer("attention.sliding_window", c.widest_window());
  const auto follows = [&](Index of) {
    for (Index i = 0; i < c.num_hidden_layers; ++i)
      if ((c.sliding_window(i) > 0) != (i % of != of - 1)) return false;
    return true;
  };
  if (follows(period)) return;
  for (Index of = 1; of <= c.num_hidden_layers + 1; ++of)
    if (follows(of)) return s.integer("attention.sliding_window_pattern", of);
  s.fail_unsupported("its local and global layers are not periodic");
}

}  // namespace

void Family::read_json(const JsonFields& fields, ModelConfig& c) const {
  read_sizes(*this, fields, c);
  if (!c.learned_positions) read_ropes(fields, rope, c);
  check(rope.partial_heads || c.rope.partial_rotary_factor == 1,
        "{}: partial_rotary_factor {} is not supported: this model_type rotates whole heads",
        fields.where(), c.rope.partial_rotary_factor);
  if (read != nullptr) read(fields, c);
  read_windows(windows, fields, c);
}

nlohmann::ordered_json Family::write_json(const ModelConfig& c) const {
  nlohmann::ordered_json out = {{"architectures", {architecture}}};
  // In this order: a model's fingerprint is of the text.
  out[key("hidden_size")] = c.hidden_size;
  if (json.inner_factor == 0) out[key("intermediate_size")] = c.intermediate_size;
  out[key("num_hidden_layers")] = c.num_hidden_layers;
  out[key("num_attention_heads")] = c.num_attention_heads;
  if (json.grouped_heads) {
    out["num_key_value_heads"] = c.num_key_value_heads;
    out["head_dim"] = c.head_dim;
  }
  out[key("max_position_embeddings")] = c.max_position_embeddings;
  if (json.inner_factor > 0) out[key("intermediate_size")] = c.intermediate_size;
  out[key("norm_eps")] = c.norm_eps;
  out[json.activation_key] = activation_name(c.activation);
  if (c.vocab_size <= json.pad_token) out["pad_token_id"] = nullptr;
  if (json.attention_bias) out["attention_bias"] = c.attention_bias;
  if (json.mlp_bias) out["mlp_bias"] = c.mlp_bias;
  if (write != nullptr) write(c, out);
  write_windows(windows, c, out);
  if (!c.learned_positions) write_ropes(rope, c, out);
  return out;
}

void Family::read_gguf(const GgufSettings& s, ModelConfig& c) const {
  if (json.attention_bias) read_gguf_attention_biases(s, c);
  if (json.mlp_bias) c.mlp_bias = s.tensor("blk.0.ffn_up.bias") != nullptr;
  if (gguf.read != nullptr) gguf.read(s, c);
  constexpr const char *kWindow = "attention.sliding_window",
                       *kPattern = "attention.sliding_window_pattern";
  // llama.cpp gives these families no window, and their converter writes none.
  if (windows.layers == Layers::upper && s.integer(kWindow, 0) > 0 && !s.has(kPattern))
    fail("{}: {} without {}: it is unknown which layers have the window", s.where(), s.key(kWindow),
         s.key(kPattern));
  if (windows.layers != Layers::none && windows.layers != Layers::unrotated)
    read_gguf_windows(s, gguf.window, windows.period, c);
  if (!rope.by_layer) return;
  // Layers with a sliding window have rotary embeddings without scaling.
  const RopeConfig local{.theta = s.number("rope.freq_base_swa", local_rope_of(c).theta),
                         .partial_rotary_factor = c.rope.partial_rotary_factor};
  c.local_rope.reset();
  if (local != c.rope) c.local_rope = local;
}

void Family::write_gguf(const ModelConfig& c, GgufSettingsWriter& s) const {
  if (gguf.write != nullptr) gguf.write(c, s);
  const Index window = c.widest_window();
  if (windows.layers == Layers::unrotated && window > 0)
    s.fail_unsupported("it has sliding windows");
  // llama.cpp ends where no layer has a window.
  if (windows.layers == Layers::periodic && window == 0)
    s.fail_unsupported("none of its layers has a sliding window");
  if (windows.layers == Layers::all && window > 0) s.integer("attention.sliding_window", window);
  if ((windows.layers == Layers::upper || gguf.window_flags) && window > 0) {
    s.integer("attention.sliding_window", window);
    std::vector<bool> local;  // of each layer
    for (Index i = 0; i < c.num_hidden_layers; ++i) local.push_back(c.sliding_window(i) > 0);
    s.flags("attention.sliding_window_pattern", local);
  } else if (windows.layers == Layers::periodic) {
    write_gguf_periodic(c, windows.period, s);
  }
  if (!rope.by_layer) return;
  const RopeConfig& local = local_rope_of(c);
  const bool scaled = local.scaling != RopeConfig::Scaling::none;
  if (rope.local_theta == nullptr && (scaled || local.theta != c.rope.theta))
    s.fail_unsupported("its local layers have a different rope_theta, or separate scaling");
  if (scaled) s.fail_unsupported("the rotary embeddings of its local layers are scaled");
  if (rope.local_theta != nullptr) s.number("rope.freq_base_swa", local.theta);
}

}  // namespace focus
