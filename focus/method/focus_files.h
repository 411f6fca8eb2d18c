#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/tensors/store.h"
#include "focus/method/focus_model.h"

// A Focus to and from files: /focus of a store, or, for exchange, a folder with focus_config.json
// and focus_model.safetensors.
namespace focus {

inline constexpr const char* kFocusConfigFile = "focus_config.json";
inline constexpr const char* kFocusWeightsFile = "focus_model.safetensors";
/// Beside the sizes, where groups were fitted.
inline constexpr const char* kFittedContext = "fitted_context";

/// A Focus as files hold it, its tensors not read yet.
struct SavedFocus {
  std::string where;  // for messages
  std::string base_fingerprint;
  FocusConfig config;
  FocusShape shape;
  std::vector<std::int64_t> updates;  // of the carried potentials, one a layer
  std::int64_t fitted_context = 0;    // Grouping::fitted_context()
  /// A layer's tensor by its name in GroupingKind::tensors; another shape is refused before memory
  /// is taken for it.
  std::function<Tensor(Index layer, const std::string& name, const Shape& shape)> tensor;
  /// What training trains.
  Index num_parameters() const;
};

/// True for a folder that holds a Focus.
bool has_focus(const std::filesystem::path& folder);

/// True for a path that holds a Focus and no model beside it; false where there is nothing.
bool is_focus_alone(const std::filesystem::path& path);

/// From an open checkpoint file or a folder. Throws std::runtime_error, one line, without a Focus.
SavedFocus open_focus(const StoreReader& store);
SavedFocus open_focus_folder(const std::filesystem::path& folder);
/// From either, by what the path is.
SavedFocus open_focus(const std::filesystem::path& path);

/// Where a layer lies in a store.
std::string layer_path(Index layer);
/// What fitting measured of the query heads of each layer, kNeeds or kSummaryWidth; none where all
/// heads have the same budget. Throws std::runtime_error where one is out of its range.
std::vector<Tensor> measured_of_heads(const SavedFocus& saved, std::string_view name);

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
