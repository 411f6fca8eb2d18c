#pragma once

#include "focus/generation/scheduler.h"
#include "focus/models/model_files.h"

// Going on from a prompt, and how fast.
namespace focus {

/// A model for a Scheduler. `cache`: of what numbers; without it everything is
/// computed again for each token. The model must outlive it.
GenerationModel generation_model(const LoadedModel& model, const AttentionSpec& mode,
                                 std::optional<CacheDtype> cache);

/// All that decides the bits of a cache that such a generation fills, for CacheFiles: the model,
/// how its weights are stored and multiplied, the adapters that it attends with, the attention.
/// Throws std::runtime_error without a cache.
std::string cache_identity(const LoadedModel& model, const GenerationModel& of);

/// Goes on from the prompt's ids.
Generated generate(const GenerationModel& model, const std::vector<std::int32_t>& prompt,
                   const GenerationOptions& options, const OnText& on_text = {});

}  // namespace focus
