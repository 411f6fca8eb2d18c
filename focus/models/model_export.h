#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tensors/store.h"
#include "focus/adapters/lora/lora.h"
#include "focus/models/model_files.h"

// Models, written: as Hugging Face's folders, GGUF files and stores.
namespace focus {

/// What written weights are in: a command's word, config.json's, and the file's.
struct WeightDtype {
  std::string_view option, published;
  Dtype dtype;
};
/// "float32", "bf16", "f16" (or "float16") and those of `blocks`; throws std::invalid_argument
/// for another word.
WeightDtype weight_dtype(std::string_view option, std::span<const Dtype> blocks = {});
/// All these words, for --help and for checks.
std::vector<std::string> weight_dtypes(std::span<const Dtype> blocks = {});

// A Hugging Face folder that transformers loads: config.json, weights whole or in shards with their
// index, the tokenizer's files; where the model has a Focus, its exchange form beside them.

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

/// Writes the model's LoRA as the folder that PEFT reads, and its Focus in the exchange form, or
/// one of them. Throws as write_adapter_folder() does, and where the model has neither.
void write_adapters_folder(const std::filesystem::path& folder, const LoadedModel& model,
                           const std::string& base, bool overwrite);

// Models and LoRA adapters as GGUF files: what llama.cpp loads. Vectors are F32 always, and so are
// learned positions.

/// What matrices can be in there, beside whole numbers.
inline constexpr std::array kGgufBlocks = {Dtype::q8_0};

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

// Stores.

struct ImportedModel {
  ReadModel model;                   // of the numbers that were written
  std::map<std::string, int> types;  // tensors of the store by the type that they have there
  int not_in_blocks = 0;             // matrices that were to be rounded into blocks and were not
};

/// Puts a model's weights into a store, tensor by tensor, under their published names. Without
/// `dtype` in the types that they have: what a GGUF file has in blocks stays in these blocks, rows
/// in Hugging Face's order. With one, all are rounded to it; with blocks, matrices whose rows are
/// whole ones are, and all else becomes float32.
ImportedModel import_weights(const ModelFiles& files, StoreWriter& store,
                             std::optional<Dtype> dtype);

}  // namespace focus
