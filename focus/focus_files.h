#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/files/store.h"
#include "focus/focus_model.h"

// A Focus on disk: /focus of a store, or, for exchange, a folder with focus_config.json and
// focus_model.safetensors.
namespace focus {

inline constexpr const char* kFocusConfigFile = "focus_config.json";
inline constexpr const char* kFocusWeightsFile = "focus_model.safetensors";
/// Of the folder's form; a reader refuses any other.
inline constexpr std::int64_t kFocusFolderVersion = 1;

/// A Focus as files hold it, its tensors not read yet.
struct SavedFocus {
  std::string where;  // for messages
  std::string base_fingerprint;
  FocusConfig config;
  FocusShape shape;
  std::vector<std::int64_t> updates;  // of the carried potentials, one a layer
  /// "projection", "centroids" or "potentials" of a layer, of groups of keys "centroids", "bias",
  /// "beta", "temperature" or "spread"; another shape is refused before memory is taken for it.
  std::function<Tensor(Index layer, const std::string& name, const Shape& shape)> tensor;
  /// What training trains.
  Index num_parameters() const;
};

/// True for a folder that holds a Focus.
bool has_focus(const std::filesystem::path& folder);

/// True for a path that holds a Focus and no model beside it; false where there is nothing.
bool is_focus_alone(const std::filesystem::path& path);

/// From an open store or from a folder. Throws std::runtime_error, one line, where there is none.
SavedFocus open_focus(const StoreReader& store);
SavedFocus open_focus_folder(const std::filesystem::path& folder);
/// From either, by what the path is.
SavedFocus open_focus(const std::filesystem::path& path);

/// All of it, whatever the base.
std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved);
/// The same for the base with that fingerprint; another is refused by name of both. `base` is the
/// base's place, for the message.
std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved, const std::string& fingerprint,
                                       const std::string& base);
/// Overwrites the values of a Focus of the same settings (for resuming).
void restore_focus(const SavedFocus& saved, FocusModel& focus);

/// Adds Focus to a store: settings, centroids, projections, potentials, the base's fingerprint.
void write_focus(StoreWriter& store, FocusModel& focus, const std::string& base_fingerprint);

/// The two files of the exchange form, in float32:
///   focus_config.json        format_version, base_model_fingerprint, num_hidden_layers,
///                            hidden_size, carried_updates, and every setting by its name
///   focus_model.safetensors  layers.{i}.projection [hidden_size, routing_dim],
///                            layers.{i}.centroids [num_groups, routing_dim],
///                            layers.{i}.potentials [num_groups]
/// With routing keys focus_config.json has num_key_value_heads and head_dim too, and the tensors
/// are
///                            layers.{i}.centroids [num_key_value_heads, num_groups, head_dim],
///                            layers.{i}.bias and .beta [num_key_value_heads, num_groups],
///                            layers.{i}.temperature and .spread [1]
/// Each appears whole or not at all; a folder that must do so is the caller's work.
void write_focus_folder(const std::filesystem::path& folder, FocusModel& focus,
                        const std::string& base_fingerprint);

}  // namespace focus
