#pragma once

#include <string>

#include "focus/models/model_files.h"

namespace focus {

/// Throws std::invalid_argument, one line that begins with `what`, where sequences of so many
/// tokens do not fit the model's positions. Learned positions end where their table ends; rotary
/// ones continue, and `beyond` allows positions that were not trained.
void require_positions(const LoadedModel& model, Index tokens, bool beyond,
                       const std::string& what);

/// What a reader has to know of figures of such sequences; empty where all positions were trained.
std::string positions_notice(const LoadedModel& model, Index tokens);

/// The same of groups that were fitted on shorter windows; empty where they were not.
std::string fit_notice(const LoadedModel& model, Index tokens);

}  // namespace focus
