#include <algorithm>
#include <cmath>
#include <map>

#include "data/files/json_reader.h"
#include "layers/gguf_settings.h"

namespace focus {

void GgufSettings::fail_missing(std::string_view name) const {
  fail("{}: key {} is missing; convert the model again", where(), key(name));
}

Index GgufSettings::in_range(std::string_view name, std::int64_t value) const {
  if (value < 0 || value > std::int64_t{1} << 40)
    fail("{}: {} must be from 0 to 2^40, not {}", where(), key(name), value);
  return value;
}

Index GgufSettings::integer(std::string_view name) const {
  const auto value = source_.metadata().integer(key(name));
  if (!value) fail_missing(name);
  return in_range(name, *value);
}

double GgufSettings::number(std::string_view name) const {
  const auto value = source_.metadata().number(key(name));
  if (!value) fail_missing(name);
  if (!std::isfinite(*value)) fail("{}: {} must be finite, not {}", where(), key(name), *value);
  return *value;
}

std::string GgufSettings::text(std::string_view name, const std::string& otherwise) const {
  return shown(source_.metadata().text(key(name)).value_or(otherwise));
}

Index GgufSettings::of_all_layers(std::string_view name, Index layers) const {
  if (!source_.metadata().is_array(key(name))) return integer(name);
  const auto values = *source_.metadata().integers(key(name));
  if (static_cast<Index>(values.size()) != layers || values.empty())
    fail("{}: {} has {} values for {} layers", where(), key(name), values.size(), layers);
  if (std::ranges::any_of(values, [&](std::int64_t value) { return value != values.front(); }))
    fail("{}: {} differs between layers, which is not supported", where(), key(name));
  return in_range(name, values.front());
}

namespace {

std::vector<TensorRule> make_rules() {
  const std::string ours = "layers.{}.", theirs = "blk.{}.";
  std::vector<TensorRule> rules = {{"embed_tokens", "token_embd"},
                                   {"embed_positions", "position_embd"},
                                   {"norm", "output_norm"},
                                   {"lm_head", "output"}};
  for (const auto& [name, gguf] : {std::pair{"input_layernorm", "attn_norm"},
                                   {"post_attention_layernorm", "ffn_norm"},
                                   {"attention_out_norm", "post_attention_norm"},
                                   {"mlp_out_norm", "post_ffw_norm"},
                                   {"self_attn.q_norm", "attn_q_norm"},
                                   {"self_attn.k_norm", "attn_k_norm"},
                                   {"self_attn.o_proj", "attn_output"},
                                   {"mlp.gate_proj", "ffn_gate"},
                                   {"mlp.up_proj", "ffn_up"},
                                   {"mlp.down_proj", "ffn_down"}})
    rules.push_back({ours + name, theirs + gguf});
  rules.push_back({ours + "mlp.gate_proj", theirs + "ffn_up", false, 0, 2});
  rules.push_back({ours + "mlp.up_proj", theirs + "ffn_up", false, 1, 2});
  int part = 0;
  for (const std::string name : {"q", "k", "v"}) {
    const TensorRule single{.ours = ours + "self_attn." + name + "_proj",
                            .theirs = theirs + "attn_" + name,
                            .rotary_pairs = name != "v"};
    TensorRule fused = single;
    fused.theirs = theirs + "attn_qkv";
    fused.part = part++;
    fused.parts = 3;
    rules.push_back(single);
    rules.push_back(fused);
  }
  return rules;
}

constexpr const char* kTypeKey = "general.type";
constexpr const char* kArchitectureKey = "general.architecture";

std::string architecture_of(const GgufMetadata& metadata) {
  const std::string type = metadata.text(kTypeKey).value_or("model");
  if (type == "adapter")
    fail("{}: an adapter, not a model; give its base here and this file as --adapter",
         metadata.where());
  if (type != "model")
    fail("{}: {} is \"{}\": it holds no model", metadata.where(), kTypeKey, shown(type));
  const auto architecture = metadata.text(kArchitectureKey);
  if (!architecture)
    fail("{}: key {} is missing: the file holds no model", metadata.where(), kArchitectureKey);
  return *architecture;
}

/// What a key of ours is called in the file.
std::string key_of(const GgufSettings& settings, const ModelConfig& config,
                   const std::string& ours) {
  if (ours == "norm_eps") return settings.key(gguf_epsilon_key(config));
  if (ours == "short_factor") return kShortFactors;
  if (ours == "long_factor") return kLongFactors;
  for (const GgufSize& size : kGgufSizes)
    if (size.ours == ours) return settings.key(size.theirs);
  static const std::map<std::string, std::string> names = {
      {"rope_theta", "rope.freq_base"},
      {"rope_local_base_freq", "rope.freq_base_swa"},
      {"partial_rotary_factor", "rope.dimension_count"},
      {"factor", "rope.scaling.factor"},
      {"beta_fast", "rope.scaling.yarn_beta_fast"},
      {"beta_slow", "rope.scaling.yarn_beta_slow"},
      {"attention_factor", "rope.scaling.attn_factor"},
      {"original_max_position_embeddings", "rope.scaling.original_context_length"},
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"},
      {"sliding_window", "attention.sliding_window"}};
  const auto name = names.find(ours);
  return name == names.end() ? ours : settings.key(name->second);
}

/// All but the vocabulary's.
void read_sizes(const GgufSettings& s, ModelConfig& c) {
  for (const auto& [ours, theirs, size, by_layer, may_lack] : std::span(kGgufSizes).subspan(1))
    if (!may_lack || s.has(theirs))
      c.*size = by_layer ? s.of_all_layers(theirs, c.num_hidden_layers) : s.integer(theirs);
  if (!s.has("attention.head_count_kv")) c.num_key_value_heads = c.num_attention_heads;
  if (!s.has("attention.key_length") && c.num_attention_heads > 0) {
    if (c.hidden_size % c.num_attention_heads != 0)
      fail("{}: {} {} does not divide {} {}", s.where(), s.key("attention.head_count"),
           c.num_attention_heads, s.key("embedding_length"), c.hidden_size);
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  const Index values = s.integer("attention.value_length", c.head_dim);
  if (values != c.head_dim)
    fail("{}: {} is {}, but keys have width {}, which is not supported", s.where(),
         s.key("attention.value_length"), values, c.head_dim);
}

/// The rows of the embedding; what the key says must agree.
void read_vocabulary(const GgufSettings& s, ModelConfig& c) {
  const TensorInfo* embedding = s.tensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    fail("{}: tensor token_embd.weight is missing or not a matrix: the file holds no model",
         s.where());
  c.vocab_size = embedding->shape[0];
  const Index said = s.integer("vocab_size", c.vocab_size);
  if (said != c.vocab_size)
    fail("{}: {} is {}, but token_embd.weight has {} rows", s.where(), s.key("vocab_size"), said,
         c.vocab_size);
}

/// The ids of beginning and end, where the vocabulary has them: llama.cpp passes over others.
void read_special_tokens(const GgufMetadata& metadata, ModelConfig& c) {
  if (metadata.text("tokenizer.ggml.model").value_or("none") == "none") return;
  const auto id = [&](const char* key) -> std::optional<Index> {
    const auto value = metadata.integer(key);
    return value && *value >= 0 && *value < c.vocab_size ? std::optional<Index>(*value)
                                                         : std::nullopt;
  };
  c.bos_token_id = id("tokenizer.ggml.bos_token_id");
  if (const auto end = id("tokenizer.ggml.eos_token_id")) c.eos_token_ids = {*end};
}

// How a GGUF file says that rotary embeddings are stretched: by keys, or by factors in tensors.
// Those of rope_freqs.weight are llama3's scaling, computed; transformers, and a model's
// config.json here, want the parameters that they were computed from.

/// A factor is a float32 that was rounded on its way more than once.
constexpr double kAccuracy = 2e-6;

bool reproduces(const RopeConfig& rope, const std::vector<double>& factors) {
  RopeConfig plain = rope;
  plain.scaling = RopeConfig::Scaling::none;
  const auto dims = static_cast<Index>(2 * factors.size());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto pair = static_cast<Index>(i);
    const double factor = plain.frequency(pair, dims) / rope.frequency(pair, dims);
    if (!(std::abs(factor - factors[i]) <= kAccuracy * factor)) return false;
  }
  return true;
}

/// The usual number for what is its float32, so that settings are those of a config.json.
void snap(double usual, double& number) {
  if (std::abs(number - usual) <= 1e-6 * usual) number = usual;
}

/// None where the file does not have the tensor.
std::vector<double> read_factors(const GgufSettings& s, const char* name, Index pairs) {
  const TensorInfo* info = s.tensor(name);
  if (info == nullptr) return {};
  if (info->shape != std::vector<Index>{pairs} || info->dtype != Dtype::f32)
    fail("{}: tensor {} must be {} F32 values, one per frequency", s.where(), name, pairs);
  const Tensor stored = s.source().read(name);
  return {stored.span().begin(), stored.span().end()};
}

void read_yarn(const GgufSettings& s, RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::yarn;
  rope.original_max_position_embeddings = s.integer("rope.scaling.original_context_length");
  rope.beta_fast = s.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
  rope.beta_slow = s.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
  // The first is transformers' own, copied by the converter; the second multiplies it.
  const double usual = yarn_attention_factor(rope.factor);
  rope.attention_factor =
      s.number("rope.scaling.yarn_attn_factor", usual) * s.number("rope.scaling.attn_factor", 1);
  snap(usual, rope.attention_factor);
}

/// By its tensors: llama.cpp's converter of phi3 names no type.
void read_longrope(const GgufSettings& s, ModelConfig& c) {
  RopeConfig& rope = c.rope;
  const Index pairs = c.rotary_dim() / 2;
  rope.short_factor = read_factors(s, kShortFactors, pairs);
  rope.long_factor = read_factors(s, kLongFactors, pairs);
  if (rope.short_factor.empty() && rope.long_factor.empty()) return;
  if (rope.short_factor.empty() || rope.long_factor.empty())
    fail("{}: {} and {} must both be set", s.where(), kShortFactors, kLongFactors);
  rope.scaling = RopeConfig::Scaling::longrope;
  rope.original_max_position_embeddings =
      s.integer("rope.scaling.original_context_length", c.max_position_embeddings);
  rope.factor = static_cast<double>(c.max_position_embeddings) /
                static_cast<double>(rope.original_max_position_embeddings);
  rope.attention_factor = s.number("rope.scaling.attn_factor", 1);
  snap(longrope_attention_factor(rope.factor, rope.original_max_position_embeddings),
       rope.attention_factor);
}

void read_rope_scaling(const GgufSettings& s, const GgufForm& form, ModelConfig& c) {
  const double factor = s.number("rope.scaling.factor", s.number("rope.scale_linear", 0));
  const std::string type = s.text("rope.scaling.type", factor > 0 ? "linear" : "none");
  const bool longrope = form.longrope && type == "longrope";
  if (type != "none" && type != "linear" && type != "yarn" && !longrope)
    fail("{}: {} \"{}\" is not supported (none, linear, yarn{} are)", s.where(),
         s.key("rope.scaling.type"), type, form.longrope ? ", longrope" : "");
  if ((type == "linear" || type == "yarn") && factor != 0) {
    c.rope.factor = factor;
    c.rope.scaling = RopeConfig::Scaling::linear;
    if (type == "yarn") read_yarn(s, c.rope);
  }
  if (form.longrope && c.rope.scaling == RopeConfig::Scaling::none) read_longrope(s, c);
  if (longrope && c.rope.scaling == RopeConfig::Scaling::none)
    fail("{}: {} is longrope, but tensor {} is missing", s.where(), s.key("rope.scaling.type"),
         kLongFactors);
  if (!form.rope_factors) return;
  const std::vector<double> factors = read_factors(s, kRopeFactors, c.rotary_dim() / 2);
  if (factors.empty()) return;
  const auto scaled =
      c.rope.scaling == RopeConfig::Scaling::none ? llama3_rope(c.rope, factors) : std::nullopt;
  if (!scaled)
    fail(
        "{}: the factors of {} are not those of llama3 scaling with the parameters of published "
        "models, "
        "the only one that is supported",
        s.where(), kRopeFactors);
  c.rope = *scaled;
}

/// A share of a head's numbers that is `dims` of them: the family's where that is it.
double rotary_factor(const ModelConfig& c, Index dims) {
  ModelConfig trial = c;
  if (trial.rotary_dim() == dims) return c.rope.partial_rotary_factor;
  trial.rope.partial_rotary_factor = static_cast<double>(dims) / static_cast<double>(c.head_dim);
  if (trial.rotary_dim() != dims)  // rounded down
    trial.rope.partial_rotary_factor = std::nextafter(trial.rope.partial_rotary_factor, 1.0);
  return trial.rope.partial_rotary_factor;
}

void read_rope(const GgufSettings& s, const GgufForm& form, ModelConfig& c) {
  c.rope.theta = s.number("rope.freq_base", 10000.0);
  const Index dims = s.integer("rope.dimension_count", c.head_dim);
  if (dims < 2 || dims % 2 != 0 || dims > c.head_dim)
    fail("{}: {} must be even and from 2 to {}, not {}", s.where(), s.key("rope.dimension_count"),
         c.head_dim, dims);
  const bool whole = c.rope.partial_rotary_factor == 1 && !form.partial_rotary;
  if (whole && dims != c.head_dim)
    fail("{}: {} is {} of {} values: this architecture rotates whole heads", s.where(),
         s.key("rope.dimension_count"), dims, c.head_dim);
  c.rope.partial_rotary_factor = rotary_factor(c, dims);
  read_rope_scaling(s, form, c);
}

/// The family whose models have that architecture, of several the one that fits whether the file
/// has a window.
const Family& find_gguf_family(const std::string& architecture, bool has_window,
                               const std::string& where) {
  const Family* found = nullptr;
  std::string known;
  for (const Family& family : families()) {
    const GgufForm& form = family.gguf;
    if (form.architecture.empty()) continue;
    if (known.find(form.architecture) == std::string::npos)
      known += (known.empty() ? "" : ", ") + form.architecture;
    if (form.architecture != architecture) continue;
    if (found == nullptr || form.has_window == has_window) found = &family;
  }
  if (found == nullptr)
    fail("{}: architecture \"{}\" is not supported ({} are)", where, shown(architecture), known);
  return *found;
}

/// Keys that change what is computed and that no family here has.
void refuse_other_forms(const GgufSettings& s) {
  const GgufMetadata& metadata = s.source().metadata();
  const std::string causal = s.key("attention.causal");
  if (!metadata.flag(causal).value_or(true))
    fail("{}: {} is false, which is not supported: attention here is causal", s.where(), causal);
  for (const char* name : {"attention.clamp_kqv", "attention.max_alibi_bias", "expert_count"}) {
    const double value = s.number(name, 0);
    if (value != 0) fail("{}: {} is {}, which is not supported", s.where(), s.key(name), value);
  }
}

}  // namespace

std::span<const TensorRule> gguf_rules() {
  static const std::vector<TensorRule> rules = make_rules();
  return rules;
}

ModelConfig read_gguf_config(const GgufSource& source) {
  const GgufMetadata& metadata = source.metadata();
  const std::string architecture = architecture_of(metadata);
  const GgufSettings s(source, architecture);
  const bool window =
      s.has("attention.sliding_window") && s.integer("attention.sliding_window") > 0;
  const Family& family = find_gguf_family(architecture, window, metadata.where());
  refuse_other_forms(s);
  ModelConfig c = family.common;
  c.model_type = family.model_type;
  const auto validate = [&](const ModelConfig& config) {
    config.validate(metadata.where(),
                    [&](const std::string& ours) { return key_of(s, config, ours); });
  };
  read_vocabulary(s, c);
  read_sizes(s, c);
  c.norm_eps = s.number(gguf_epsilon_key(c));
  ModelConfig sizes = c;  // what follows divides by them
  sizes.learned_positions = true;
  validate(sizes);
  if (!c.learned_positions) read_rope(s, family.gguf, c);
  c.tie_word_embeddings = s.tensor("output.weight") == nullptr;
  read_special_tokens(metadata, c);
  family.read_gguf(s, c);
  validate(c);
  return c;
}

void read_gguf_attention_biases(const GgufSettings& s, ModelConfig& c) {
  c.attention_bias = s.tensor("blk.0.attn_q.bias") || s.tensor("blk.0.attn_qkv.bias");
  c.attention_out_bias = s.tensor("blk.0.attn_output.bias") != nullptr;
  if (c.attention_bias != c.attention_out_bias)
    fail(
        "{}: biases only on {}, but in a {} either all of q, k, v and the output have biases or "
        "none",
        s.where(), c.attention_bias ? "q, k and v" : "the output", c.model_type);
}

std::optional<RopeConfig> llama3_rope(RopeConfig rope, const std::vector<double>& factors) {
  const auto sane = [](double factor) { return factor >= 1 - kAccuracy && factor <= 1e6; };
  if (factors.empty() || !std::ranges::all_of(factors, sane)) return std::nullopt;
  rope.factor = std::round(std::ranges::max(factors) * 1e4) / 1e4;
  if (rope.factor == 1) return reproduces(rope, factors) ? std::optional(rope) : std::nullopt;
  rope.scaling = RopeConfig::Scaling::llama3;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  const auto fits = [&](Index original) {
    rope.original_max_position_embeddings = original;
    return reproduces(rope, factors);
  };
  if (fits(8192)) return rope;
  for (Index original = 16; original <= 1 << 24; original *= 2)
    if (fits(original)) return rope;
  return std::nullopt;
}

}  // namespace focus
