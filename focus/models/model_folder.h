#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "focus/models/fingerprint.h"

// A Hugging Face folder that transformers loads, written: config.json, weights whole or in shards
// with their index, the tokenizer's files; where the model has a Focus, its exchange form beside
// them.
namespace focus {

/// What an exported folder's weights are in: a command's word, config.json's, and the file's.
struct ExportDtype {
  std::string_view option, published;
  Dtype dtype;
};
/// "float32", "bf16" or "f16"; throws std::invalid_argument for another.
const ExportDtype& export_dtype(std::string_view option);

struct ExportOptions {
  std::string_view dtype = "float32";
  std::uint64_t shard_bytes = 5'000'000'000;  // of one weights file at most; transformers' "5GB"
  bool overwrite = false;                     // replace a folder of nothing but exported files
  /// Python beside the weights, by which transformers computes the Focus's attention.
  bool with_code = false;
};

/// Writes `files` and, where given, a Focus for them; another base's is refused. The folder appears
/// whole or not at all. Throws std::runtime_error, one line.
ReadModel write_model_folder(const std::filesystem::path& folder, const ModelFiles& files,
                             const std::optional<SavedFocus>& focus, const ExportOptions& options);
/// Writes a Focus alone, in its exchange form.
void write_adapter_folder(const std::filesystem::path& folder, const SavedFocus& focus,
                          bool overwrite);

}  // namespace focus
