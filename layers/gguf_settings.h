#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/gguf/gguf.h"
#include "layers/family.h"

namespace focus {

/// The settings of a model in a GGUF file: names are keys without their first part, the
/// architecture. Throws std::runtime_error naming file and key.
class GgufSettings {
 public:
  GgufSettings(const GgufSource& source, std::string architecture);

  const std::string& where() const { return source_.metadata().where(); }
  const std::string& architecture() const { return architecture_; }
  /// "llama.block_count"
  std::string key(std::string_view name) const;
  bool has(std::string_view name) const { return source_.metadata().has(key(name)); }

  /// From 0 to 2^40.
  Index integer(std::string_view name) const;
  Index integer(std::string_view name, Index otherwise) const;
  /// Finite.
  double number(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;
  bool flag(std::string_view name, bool otherwise) const;
  std::string text(std::string_view name, const std::string& otherwise) const;
  /// The number that a key has for all layers, once or in a list of one per layer. Throws where
  /// they differ, which no family here can.
  Index of_all_layers(std::string_view name, Index layers) const;

  /// A tensor of the file, or null.
  const TensorInfo* tensor(std::string_view name) const;
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
/// Sliding windows by attention.sliding_window and its pattern; `window` where the file says none
/// and 0 means none. `period`: every so manieth layer has none where the file has no pattern; 0:
/// all have one.
void read_gguf_windows(const GgufSettings& settings, Index window, Index period,
                       ModelConfig& config);

/// The base frequency of layers with a sliding window, `theta` where the file says none: they have
/// rotary embeddings without scaling.
void read_gguf_local_rope(const GgufSettings& settings, double theta, ModelConfig& config);

/// rope.scaling.* and the tensors of factors that go with it, into a config that has its base
/// frequency and knows how many numbers are rotated.
void read_gguf_rope_scaling(const GgufSettings& settings, const GgufForm& form,
                            ModelConfig& config);

/// llama3's parameters from the factors by which each frequency is divided; `rope` says the rest.
/// Several give the same factors: those of published models come first. Nothing where none gives
/// them to float32's accuracy.
std::optional<RopeConfig> llama3_rope(RopeConfig rope, const std::vector<double>& factors);

}  // namespace focus
