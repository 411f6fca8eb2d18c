#pragma once

#include <filesystem>

#include "focus/models/model_files.h"

namespace focus {

/// Trainers save the tokenizer and the chat template that an adapter was trained with into its
/// folder: makes that template the model's, and tells by notices of it and of a tokenizer that
/// differs, which is not used.
void take_tokenizer_files(const std::filesystem::path& folder, LoadedModel& model);

}  // namespace focus
