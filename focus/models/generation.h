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
  /// Why it ended: "end of text", "until", "max-new-tokens", "positions" or "caller".
  std::string stop;
  double prefill_rate = 0, decode_rate = 0;  // tokens per second
};

/// Called after every token with the text that it adds, and in the end with what was held back.
/// Empty while a character is not whole, or what came may be the beginning of an `until`. False
/// ends the generation.
using OnText = std::function<bool(const std::string& text)>;

/// Goes on from the prompt's ids.
Generated generate(const LoadedModel& model, Generator& generator,
                   const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                   const OnText& on_text = {});

}  // namespace focus
