#pragma once

#include <functional>
#include <string>
#include <vector>

#include "focus/generation/generator.h"
#include "focus/generation/sampling.h"
#include "focus/models/model_files.h"

// Going on from a prompt, and how fast.
namespace focus {

struct GenerationOptions {
  Index max_new_tokens = 64;
  std::uint64_t seed = 1;  // of the draws
  SamplingOptions sampling = {};
  std::vector<std::string> until = {};  // the text ends before the first of these
};

struct Generated {
  std::vector<std::int32_t> ids;
  std::string text;
  std::string stop;  // why it ended: "end of text", "until", "max-new-tokens" or "positions"
  double prefill_rate = 0, decode_rate = 0;  // tokens per second
};

/// Goes on from the prompt's ids; `told`, where given, is called with the text as it comes.
Generated generate(const LoadedModel& model, Generator& generator,
                   const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                   const std::function<void(const std::string&)>& told = {});

}  // namespace focus
