#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/files/store.h"
#include "focus/focus_model.h"

// A Focus as it lies on disk, read without making a model of it: /focus of a store, or, for
// exchange, a folder with focus_config.json and focus_model.safetensors.
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

/// Names of a layer's tensors.
std::span<const char* const> tensors_of(const FocusConfig& config);
/// The shape that one of them has.
Shape shape_of(const SavedFocus& saved, std::string_view name);
/// Where a layer lies in a store.
std::string layer_path(Index layer);

/// Sizes of a shape by their names in files: those of groups of keys only where there are such.
template <class F>
void for_each_size(FocusShape& shape, RoutingSpace routing, F&& f) {
  f("hidden_size", shape.hidden_size);
  if (routing != RoutingSpace::keys) return;
  f("num_key_value_heads", shape.kv_heads);
  f("head_dim", shape.head_dim);
}

}  // namespace focus
