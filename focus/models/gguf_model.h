#pragma once

#include <filesystem>

#include "data/gguf/gguf_metadata.h"
#include "focus/models/model_files.h"

namespace focus {

/// A GGUF file, or the first of several, as a model: settings, tokenizer and side files from its
/// metadata, the weights mapped where they lie. Without `tokenizer` that of the file is not made:
/// another is named in its place. Throws std::runtime_error or std::invalid_argument, one line.
ModelFiles open_gguf(const std::filesystem::path& path, bool tokenizer = true);

/// The generation_config.json of a GGUF file: BOS, padding, and every id that ends a generation in
/// llama.cpp, the file's EOS first; `vocab_size`: ids beyond are no tokens. Empty where nothing is
/// said of them.
std::string gguf_generation_config(const GgufMetadata& metadata, Index vocab_size);

}  // namespace focus
