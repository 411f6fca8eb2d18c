#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "focus/models/model_files.h"

// The forms in which models and adapters are on disk: one file and one row of the table each.
namespace focus {

struct ModelFormat {
  /// Whether a path is of this form; the first in the table that says so opens it.
  bool (*is)(const std::filesystem::path& path);
  /// Without `own_tokenizer` the model's tokenizer is not read: another one replaces it. Throws
  /// std::runtime_error or std::invalid_argument, one line.
  ModelFiles (*open)(const std::filesystem::path& path, bool own_tokenizer);
  /// The adapters of a path for a model of that shape, at least one. Throws as open() does.
  std::vector<SavedAdapter> (*open_adapters)(const std::filesystem::path& path,
                                             const ModelConfig& shape);
};

ModelFormat folder_format();      // Hugging Face's; of adapters PEFT's, and an exported Focus
ModelFormat gguf_format();        // one file, or the first of several
ModelFormat checkpoint_format();  // every other file

/// The format of a path. Throws std::runtime_error where there is nothing: "PATH: no such file or
/// folder; EXPECTED".
const ModelFormat& format_of(const std::filesystem::path& path, std::string_view expected);

}  // namespace focus
