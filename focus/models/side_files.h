#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tensors/store.h"
#include "data/tokenizers/tokenizer.h"
#include "focus/generation/sampling.h"
#include "layers/model_config.h"

// What belongs to a published model beside config.json, the weights and the files that its
// tokenizer is made from: how it is generated with, its special tokens, its chat template. A store
// has them in /side, but for those that are among the tokenizer's files.
namespace focus {

/// Plain file name -> bytes.
using SideFiles = std::map<std::string, std::string>;

inline constexpr const char* kGenerationConfig = "generation_config.json";

/// Whether it is a file with the ending of our checkpoint files.
bool is_checkpoint_file(const std::filesystem::path& path);

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

/// What a model's generation_config.json says; nothing where it has none.
struct GenerationConfig {
  std::optional<std::vector<Index>> eos_token_ids;  // empty: an empty list
  bool from_model_config = false;                   // it was made from config.json
  bool do_sample = false;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<Index> top_k;
  TokenRules rules;
  std::vector<std::string> stop_strings;  // for GenerationOptions::until
  /// What else it says that changes which token comes next, and is not applied: "num_beams 3".
  std::vector<std::string> not_applied;

  /// Puts what transformers' generate would do into `sampling`, but for what a flag
  /// has said, and returns what was put there: "temperature 0.6, top_p 0.9"; empty where it is
  /// nothing. Without do_sample that is greedy decoding, whatever the temperature is; with it top_k
  /// is 50 where nothing says otherwise.
  struct Said {
    bool temperature = false, top_k = false, top_p = false, repetition_penalty = false,
         min_p = false;
  };
  std::string apply(const Said& flags, SamplingOptions& sampling) const;
};

/// Throws std::runtime_error, one line that begins with `where`, for what is no such file.
GenerationConfig read_generation_config(const SideFiles& files, const std::string& where);

/// The ids that end a generation: those of generation_config.json, else the config's; of a file
/// that was made from the config those of both. A notice tells where the config has others.
std::vector<std::int32_t> generation_ends(const GenerationConfig& generation,
                                          const ModelConfig& config, const std::string& where);

/// The generation_config.json of an exported folder: as it came with the model; what the config
/// says of the tokens at the ends goes into one that was made from it, and is all where there was
/// none. Empty without any.
std::string exported_generation_config(const SideFiles& files, const ModelConfig& config);

/// Which special tokens precede and follow a text.
enum class Bos {
  automatic,  // what the tokenizer's files put there
  always,     // before it the config's BOS, else the tokenizer's
  never,
  window  // before each window: what `automatic` has, else what `always` has
};
constexpr auto enum_names(Bos) {
  return std::array<std::string_view, 4>{"auto", "always", "never", "window"};
}

}  // namespace focus
