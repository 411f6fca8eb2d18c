#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "focus/models/model_files.h"

// Models and LoRA adapters as GGUF files, written: what llama.cpp loads.
namespace focus {

/// What the matrices are in: "float32", "f16" (or "float16"), "bf16", "q8_0"; throws
/// std::invalid_argument for another word. Vectors are F32 always, and so are learned positions.
Dtype gguf_dtype(std::string_view option);

struct GgufWritten {
  std::string architecture, type;  // "llama", "F16"
  Index parameters = 0;
  std::vector<std::string> notices;  // what llama.cpp does otherwise, or what was left out
};

/// Writes settings, tokenizer and weights; never more than the largest tensor is in memory. The
/// file appears whole or not at all. `own_tokenizer`: it is the model's, so that what a GGUF file
/// says of it is copied. Throws std::runtime_error, one line, for what such a file cannot say:
/// an attention that is not the model's own, settings without a key.
GgufWritten write_gguf_model(const std::filesystem::path& path, const ModelFiles& files,
                             Dtype dtype, bool own_tokenizer);

/// Writes a LoRA for `--lora` of llama.cpp: pairs in float32 or `dtype` under the base's names.
/// Throws std::runtime_error where the base has those rows fused that the LoRA has not.
GgufWritten write_gguf_adapter(const std::filesystem::path& path, const LoadedModel& model,
                               Dtype dtype);

}  // namespace focus
