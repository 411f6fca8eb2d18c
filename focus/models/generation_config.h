#pragma once

#include <optional>
#include <string>
#include <vector>

#include "focus/generation/sampling.h"
#include "focus/models/side_files.h"

namespace focus {

/// What a model's generation_config.json says; nothing where it has none.
struct GenerationConfig {
  std::optional<std::vector<Index>> eos_token_ids;  // empty: an empty list
  bool from_model_config = false;                   // it was made from config.json
  bool do_sample = false;
  std::optional<double> temperature, top_p, repetition_penalty;
  std::optional<Index> top_k;

  /// Puts what transformers' generate would do into `sampling`, but for what a flag has said, and
  /// returns what was put there: "temperature 0.6, top_p 0.9"; empty where it is nothing. Without
  /// do_sample that is greedy decoding, whatever the temperature is; with it top_k is 50 where
  /// nothing says otherwise.
  struct Said {
    bool temperature = false, top_k = false, top_p = false, repetition_penalty = false;
  };
  std::string apply(const Said& flags, SamplingOptions& sampling) const;
};

/// Throws std::runtime_error, one line that begins with `where`, for what is no such file.
GenerationConfig read_generation_config(const SideFiles& files, const std::string& where);

/// The ids that end a generation: those of generation_config.json, else the config's; of a file
/// that was made from the config those of both. A notice tells where the config has others.
std::vector<std::int32_t> generation_ends(const GenerationConfig& generation,
                                          const ModelConfig& config, const std::string& where);

}  // namespace focus
