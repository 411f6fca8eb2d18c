#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "data/gguf/gguf.h"
#include "data/gguf/gguf_writer.h"
#include "layers/family.h"

namespace focus {

/// Our modules' names in GGUF files, one table for every family. Some have two, of which the first
/// that a file holds is meant: q, k and v may be fused in one tensor, gate and up too where the
/// family fuses them.
std::span<const TensorRule> gguf_rules();

/// Every name that ours may have in a file of the model's family, the first first:
/// "blk.0.attn_q.weight", "blk.0.attn_qkv.weight".
std::vector<StoredName> names_in_gguf(const ModelConfig& config, const std::string& ours);

/// The tensor of factors by which rotary frequencies are divided, no parameter.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";
/// Those of longrope, for texts within the original length and beyond it.
inline constexpr const char* kShortFactors = "rope_factors_short.weight";
inline constexpr const char* kLongFactors = "rope_factors_long.weight";

/// The tensor of a GGUF file that a parameter of ours is, or is a part of: what the family's own
/// files have fused is fused there too.
std::string gguf_name(const ModelConfig& config, const std::string& ours);
/// The parameter's numbers as they lie there: rows in llama's order, what is added to norms. Takes
/// any matrix with the parameter's rows.
Tensor to_gguf_order(const ModelConfig& config, const std::string& ours, const Tensor& parameter);

/// A number of a model that is whole, with its key behind the architecture.
struct GgufSize {
  std::string_view ours, theirs;
  Index ModelConfig::*size;
  bool by_layer = false, may_lack = false;
};
/// In the order in which they are written.
inline constexpr GgufSize kGgufSizes[] = {
    {"vocab_size", "vocab_size", &ModelConfig::vocab_size},
    {"max_position_embeddings", "context_length", &ModelConfig::max_position_embeddings},
    {"hidden_size", "embedding_length", &ModelConfig::hidden_size},
    {"num_hidden_layers", "block_count", &ModelConfig::num_hidden_layers},
    {"intermediate_size", "feed_forward_length", &ModelConfig::intermediate_size, true},
    {"num_attention_heads", "attention.head_count", &ModelConfig::num_attention_heads, true},
    {"num_key_value_heads", "attention.head_count_kv", &ModelConfig::num_key_value_heads, true,
     true},
    {"head_dim", "attention.key_length", &ModelConfig::head_dim, false, true}};
inline const char* gguf_epsilon_key(const ModelConfig& config) {
  return config.norm == NormKind::rms_norm ? "attention.layer_norm_rms_epsilon"
                                           : "attention.layer_norm_epsilon";
}

/// The settings of a model in a GGUF file: names are keys without their first part, the
/// architecture. Throws std::runtime_error naming file and key.
class GgufSettings {
 public:
  GgufSettings(const GgufSource& source, std::string architecture)
      : source_(source), architecture_(std::move(architecture)) {}

  const std::string& where() const { return source_.metadata().where(); }
  /// "llama.block_count"
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  bool has(std::string_view name) const { return source_.metadata().has(key(name)); }

  /// From 0 to 2^40.
  Index integer(std::string_view name) const;
  Index integer(std::string_view name, Index otherwise) const {
    return has(name) ? integer(name) : otherwise;
  }
  /// Finite.
  double number(std::string_view name) const;
  double number(std::string_view name, double otherwise) const {
    return has(name) ? number(name) : otherwise;
  }
  bool flag(std::string_view name, bool otherwise) const {
    return source_.metadata().flag(key(name)).value_or(otherwise);
  }
  std::string text(std::string_view name, const std::string& otherwise) const;
  /// The number that a key has for all layers, once or in a list of one per layer. Throws where
  /// they differ, which no family here can.
  Index of_all_layers(std::string_view name, Index layers) const;

  /// A tensor of the file, or null.
  const TensorInfo* tensor(std::string_view name) const { return source_.find(name); }
  const GgufSource& source() const { return source_; }

 private:
  [[noreturn]] void fail_missing(std::string_view name) const;
  Index in_range(std::string_view name, std::int64_t value) const;

  const GgufSource& source_;
  std::string architecture_;
};

/// The settings of a model, from the metadata and the tensors' names and shapes; `source` is held
/// to what this program can compute: another architecture, rotary scaling or activation is refused
/// by name. Throws std::runtime_error or std::invalid_argument, one line.
ModelConfig read_gguf_config(const GgufSource& source);

/// Biases on q, k, v and the output, which all have or none.
void read_gguf_attention_biases(const GgufSettings& settings, ModelConfig& config);

/// llama3's parameters from the factors by which each frequency is divided; `rope` says the rest.
/// Nothing where those of published models (low_freq_factor 1, high_freq_factor 4, an original
/// length that is a power of two) do not give them to float32's accuracy.
std::optional<RopeConfig> llama3_rope(RopeConfig rope, const std::vector<double>& factors);

// The inverse: a model's settings as the metadata of a GGUF file.

/// Adds keys with the architecture as their first part, in the types that llama.cpp accepts.
class GgufSettingsWriter {
 public:
  /// `where`: the model, for messages. `keys` has to outlive this.
  GgufSettingsWriter(GgufKeys& keys, std::string architecture, std::string where)
      : keys_(keys), architecture_(std::move(architecture)), where_(std::move(where)) {}

  void integer(std::string_view name, Index value);
  void number(std::string_view name, double value) {
    keys_.f32(key(name), static_cast<float>(value));
  }
  void flag(std::string_view name, bool value) { keys_.flag(key(name), value); }
  void flags(std::string_view name, const std::vector<bool>& values) {
    keys_.flags(key(name), values);
  }
  void text(std::string_view name, std::string_view value) { keys_.text(key(name), value); }
  /// Something that llama.cpp does otherwise with such a file.
  void notice(std::string_view text) { notices_.emplace_back(text); }
  const std::vector<std::string>& notices() const { return notices_; }
  /// Throws std::runtime_error: "MODEL: WHAT, which a GGUF file of ARCHITECTURE cannot say".
  [[noreturn]] void fail_unsupported(const std::string& what) const;

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }

  GgufKeys& keys_;
  std::string architecture_, where_;
  std::vector<std::string> notices_;
};

/// Adds general.architecture and the settings, which read_gguf_config() and llama.cpp read back.
/// Throws std::runtime_error, one line, for what the architecture has no key for and is not what
/// they take it to be: another activation, query scale, rotary scaling, bias. `where` is the model,
/// for messages. Gives what llama.cpp does otherwise (windows, gelu), a line each.
std::vector<std::string> add_gguf_settings(const ModelConfig& config, const std::string& where,
                                           GgufKeys& keys);

/// The tensors of factors that a model's rotary scaling wants beside its parameters (llama3,
/// longrope), with their names.
std::vector<std::pair<std::string, std::vector<Real>>> gguf_rope_tensors(const ModelConfig& config);

/// Whether the file holds a tied output head once more, as llama.cpp wants of the architecture.
bool copies_tied_head(const ModelConfig& config);

/// Throws std::runtime_error where a file that was just written reads back with other settings.
void check_gguf_settings(const ModelConfig& config, const GgufSource& written);

}  // namespace focus
