#pragma once

#include <filesystem>
#include <optional>

#include "focus/training/session.h"

// Checkpoints and results of a session.
namespace focus {

/// Writes everything that the next step depends on except a frozen base: settings, trained
/// parameters, optimiser, position in the data. `valid_start` is the loss before the first step.
///
/// A checkpoint belongs to the phase of its last step: at the end of two_phase's first phase it is
/// that of a retrofit, and the next step begins the second phase.
void write_checkpoint(const std::filesystem::path& path, Session& session,
                      std::optional<double> valid_start);

/// Restores a session of the same config, base and text; throws, naming the difference, if they
/// differ. Returns `valid_start`.
std::optional<double> restore_checkpoint(const std::filesystem::path& path, Session& session);

/// Writes a finished session's result into a folder: focus.h5 (retrofit), lora.h5 and PEFT's two
/// files (lora), or model.h5. Returns the store's path.
std::filesystem::path write_result(const std::filesystem::path& folder, Session& session);

}  // namespace focus
