#pragma once

#include <filesystem>
#include <optional>

#include "focus/training/session.h"

// What a session leaves on disk, and goes on from.
namespace focus {

/// Writes all that the next step depends on but a frozen base: settings, what is trained, the
/// optimiser, the position in the data. `valid_start` is the loss before the first step.
///
/// A checkpoint is of the phase of the last step done: at the end of two_phase's first one it holds
/// what a retrofit's holds, and the next step begins the second.
void write_checkpoint(const std::filesystem::path& path, Session& session,
                      std::optional<double> valid_start);

/// Brings a session of the same config, base and text to where the checkpoint was; another is
/// refused, naming what differs. Returns `valid_start`.
std::optional<double> restore_checkpoint(const std::filesystem::path& path, Session& session);

/// Writes a finished session's result into a folder: focus.h5 (retrofit), lora.h5 and PEFT's two
/// files (lora), or model.h5. Returns the store's path.
std::filesystem::path write_result(const std::filesystem::path& folder, Session& session);

}  // namespace focus
