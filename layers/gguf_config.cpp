#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "layers/gguf_names.h"
#include "layers/gguf_settings.h"

namespace focus {
namespace {

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

const char* epsilon_key(const ModelConfig& config) {
  return config.norm == NormKind::rms_norm ? "attention.layer_norm_rms_epsilon"
                                           : "attention.layer_norm_epsilon";
}

/// What a key of ours is called in the file.
std::string key_of(const GgufSettings& settings, const ModelConfig& config,
                   const std::string& ours) {
  if (ours == "norm_eps") return settings.key(epsilon_key(config));
  static const std::map<std::string, std::string> names = {
      {"vocab_size", "vocab_size"},
      {"hidden_size", "embedding_length"},
      {"intermediate_size", "feed_forward_length"},
      {"num_hidden_layers", "block_count"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"},
      {"head_dim", "attention.key_length"},
      {"max_position_embeddings", "context_length"},
      {"rope_theta", "rope.freq_base"},
      {"rope_local_base_freq", "rope.freq_base_swa"},
      {"partial_rotary_factor", "rope.dimension_count"},
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"},
      {"sliding_window", "attention.sliding_window"}};
  const auto name = names.find(ours);
  return name == names.end() ? ours : settings.key(name->second);
}

void read_sizes(const GgufSettings& s, ModelConfig& c) {
  c.num_hidden_layers = s.integer("block_count");
  c.hidden_size = s.integer("embedding_length");
  c.max_position_embeddings = s.integer("context_length");
  c.intermediate_size = s.of_all_layers("feed_forward_length", c.num_hidden_layers);
  c.num_attention_heads = s.of_all_layers("attention.head_count", c.num_hidden_layers);
  c.num_key_value_heads = s.has("attention.head_count_kv")
                              ? s.of_all_layers("attention.head_count_kv", c.num_hidden_layers)
                              : c.num_attention_heads;
  if (s.has("attention.key_length")) {
    c.head_dim = s.integer("attention.key_length");
  } else if (c.num_attention_heads > 0) {
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
  c.eos_token_id = id("tokenizer.ggml.eos_token_id");
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
  read_gguf_rope_scaling(s, form, c);
}

}  // namespace

ModelConfig read_gguf_config(const GgufSource& source) {
  const GgufMetadata& metadata = source.metadata();
  const std::string architecture = architecture_of(metadata);
  const GgufSettings s(source, architecture);
  const bool window =
      s.has("attention.sliding_window") && s.integer("attention.sliding_window") > 0;
  const Family& family = find_gguf_family(architecture, window, metadata.where());
  ModelConfig c = family.common;
  c.model_type = family.model_type;
  const auto validate = [&](const ModelConfig& config) {
    config.validate(metadata.where(),
                    [&](const std::string& ours) { return key_of(s, config, ours); });
  };
  read_vocabulary(s, c);
  read_sizes(s, c);
  c.norm_eps = s.number(epsilon_key(c));
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

void read_gguf_windows(const GgufSettings& s, Index window, Index period, ModelConfig& c) {
  window = s.integer("attention.sliding_window", window);
  if (window == 0) return;
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const std::string key = s.key(kPattern);
  std::vector<bool> local(static_cast<std::size_t>(c.num_hidden_layers), true);
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

void read_gguf_local_rope(const GgufSettings& s, double theta, ModelConfig& c) {
  const RopeConfig local{.theta = s.number("rope.freq_base_swa", theta),
                         .partial_rotary_factor = c.rope.partial_rotary_factor};
  c.local_rope.reset();
  if (local != c.rope) c.local_rope = local;
}

}  // namespace focus
