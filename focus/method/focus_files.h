#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "focus/method/focus_model.h"
#include "focus/method/saved_focus.h"

// A Focus to and from files.
namespace focus {

/// All of it, whatever the base.
std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved);
/// The same for the base with that fingerprint; another is refused by name of both. `base` is the
/// base's place, for the message.
std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved, const std::string& fingerprint,
                                       const std::string& base);
/// The same as any adapter.
SavedAdapter saved_adapter(const SavedFocus& saved);
/// Overwrites the values of a Focus of the same settings (for resuming).
void restore_focus(const SavedFocus& saved, FocusModel& focus);

/// Adds Focus to a store: settings, centroids, projections, potentials, the base's fingerprint.
void write_focus(StoreWriter& store, FocusModel& focus, const std::string& base_fingerprint);

/// The two files of the exchange form, in float32:
///   focus_config.json        format_version, base_model_fingerprint, num_hidden_layers,
///                            hidden_size, carried_updates, and every setting by its name
///   focus_model.safetensors  layers.{i}.NAME, the grouping's tensors (GroupingKind::tensors):
///     tokens                 projection [hidden_size, routing_dim],
///                            centroids [num_groups, routing_dim], potentials [num_groups]
///     keys                   centroids [num_key_value_heads, num_groups, head_dim],
///                            bias and summary_bias [num_key_value_heads, num_groups],
///                            temperature and spread [1];
///                            focus_config.json has num_key_value_heads and head_dim too
/// Each appears whole or not at all; a folder that must do so is the caller's work.
void write_focus_folder(const std::filesystem::path& folder, FocusModel& focus,
                        const std::string& base_fingerprint);

}  // namespace focus
