#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/tensors/store.h"
#include "focus/method/grouping/grouping.h"

// A Focus as it lies on disk, read without making a model of it: /focus of a store, or, for
// exchange, a folder with focus_config.json and focus_model.safetensors.
namespace focus {

inline constexpr const char* kFocusConfigFile = "focus_config.json";
inline constexpr const char* kFocusWeightsFile = "focus_model.safetensors";
/// Beside the sizes, where groups were fitted.
inline constexpr const char* kFittedContext = "fitted_context";
inline constexpr std::int64_t kFocusFolderVersion = 1;

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

/// A layer's tensors by their names and shapes in files.
std::vector<LayerTensor> tensors_of(const FocusConfig& config, const FocusShape& shape);
/// Where a layer lies in a store.
std::string layer_path(Index layer);
/// The settings that files hold: those of the config's own grouping alone.
std::vector<ConfigField> stored_fields(FocusConfig& config);

/// The needs of the query heads of each layer; none where all have the same budget. Throws
/// std::runtime_error where one is negative or no number.
std::vector<Tensor> head_needs(const SavedFocus& saved);

/// Sizes of a shape by their names in files: those of a key head's groups where there are such.
template <class F>
void for_each_size(FocusShape& shape, const FocusConfig& config, F&& f) {
  f("hidden_size", shape.hidden_size);
  if (!grouping_kind(config).is_per_head) return;
  f("num_key_value_heads", shape.kv_heads);
  f("head_dim", shape.head_dim);
  if (config.keys().head_budgets == HeadBudgets::measured) f("num_attention_heads", shape.heads);
}

}  // namespace focus
