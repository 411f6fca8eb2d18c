#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/gguf/gguf.h"
#include "data/gguf/gguf_keys.h"
#include "layers/family.h"

// The inverse of gguf_settings.h: a model's settings as the metadata of a GGUF file.
namespace focus {

/// Adds keys with the architecture as their first part, in the types that llama.cpp accepts.
class GgufSettingsWriter {
 public:
  /// `where`: the model, for messages. `keys` has to outlive this.
  GgufSettingsWriter(GgufKeys& keys, std::string architecture, std::string where)
      : keys_(keys), architecture_(std::move(architecture)), where_(std::move(where)) {}

  void integer(std::string_view name, Index value);
  void number(std::string_view name, double value);
  void flag(std::string_view name, bool value);
  void flags(std::string_view name, const std::vector<bool>& values);
  void text(std::string_view name, std::string_view value);
  /// Something that llama.cpp does otherwise with such a file.
  void notice(std::string_view text) { notices_.emplace_back(text); }
  const std::vector<std::string>& notices() const { return notices_; }
  /// Throws std::runtime_error: "MODEL: WHAT, which a GGUF file of ARCHITECTURE cannot say".
  [[noreturn]] void fail_unsupported(const std::string& what) const;

 private:
  std::string key(std::string_view name) const;

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

/// sliding_windows as attention.sliding_window and its pattern, a flag for each layer.
void write_gguf_upper_windows(const ModelConfig& config, GgufSettingsWriter& settings);

}  // namespace focus
