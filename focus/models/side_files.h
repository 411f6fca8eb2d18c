#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "data/tensors/store.h"
#include "data/tokenizers/tokenizer.h"
#include "layers/model_config.h"

// What belongs to a published model beside config.json, the weights and the files that its
// tokenizer is made from: how it is generated with, its special tokens, its chat template. A store
// has them in /side, but for those that are among the tokenizer's files.
namespace focus {

/// Plain file name -> bytes.
using SideFiles = std::map<std::string, std::string>;

inline constexpr const char* kGenerationConfig = "generation_config.json";

/// Whether a file of that name beside a model is one.
bool is_side_file(const std::string& name);

/// Those of a folder. Throws std::runtime_error where one cannot be read or is too large.
SideFiles read_side_files(const std::filesystem::path& folder);
/// Those of a store; none in one that was written before there were any.
SideFiles read_side_files(const StoreReader& store);
/// Takes away what belongs to the tokenizer, and puts that of the folder of `tokenizer` (as
/// load_tokenizer takes it) in its place.
void replace_tokenizer_side_files(SideFiles& files, const std::filesystem::path& tokenizer);
/// Adds those of the tokenizer's own files that are side files as well.
void add_tokenizer_files(SideFiles& files, const Tokenizer& tokenizer);

/// Adds to a store what is not among the tokenizer's files; `tokenizer` may be null.
void write_side_files(StoreWriter& store, const SideFiles& files, const Tokenizer* tokenizer);

/// The generation_config.json of an exported folder: as it came with the model; what the config
/// says of the tokens at the ends goes into one that was made from it, and is all where there was
/// none. Empty without any.
std::string exported_generation_config(const SideFiles& files, const ModelConfig& config);

}  // namespace focus
