#include "focus/method/saved_focus.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/gguf/gguf.h"
#include "data/settings/settings_json.h"
#include "data/tensors/safetensors.h"
#include "data/text/text.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr Index kMostLayers = 4096, kMostWidth = 1 << 20, kMostContext = Index{1} << 32;
constexpr std::uintmax_t kMostConfigBytes = 1 << 20;

void check_settings(const SavedFocus& saved) {
  try {
    saved.config.validate();
  } catch (const std::invalid_argument& error) {
    fail("{}: {}", saved.where, error.what());
  }
}

void check_sizes(const SavedFocus& saved) {
  const Index layers = saved.shape.num_layers;
  if (layers < 1 || layers > kMostLayers) fail("{}: {} layers are not valid", saved.where, layers);
  FocusShape shape = saved.shape;
  for_each_size(shape, saved.config, [&](const char* name, Index size) {
    if (size < 1 || size > kMostWidth) fail("{}: {} {} is not valid", saved.where, name, size);
  });
  if (saved.fitted_context < 0 || saved.fitted_context > kMostContext)
    fail("{}: {} {} is not valid", saved.where, kFittedContext, saved.fitted_context);
  if (static_cast<Index>(saved.updates.size()) != layers)
    fail("{}: carried_updates has {} values for {} layers", saved.where, saved.updates.size(),
         layers);
}

Tensor read_shaped(const TensorSource& source, const std::string& name, const Shape& shape) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) fail("{}: tensor {} is missing", source.describe(), name);
  if (!std::ranges::equal(info->shape, shape.dims()))
    fail("{}: tensor {} has shape [{}], but {} requires {}", source.describe(), name,
         fmt::join(info->shape, ", "), kFocusConfigFile, shape);
  return source.read(name);
}

}  // namespace

std::vector<LayerTensor> tensors_of(const FocusConfig& config, const FocusShape& shape) {
  return grouping_kind(config).tensors(config, shape);
}

std::vector<Tensor> head_needs(const SavedFocus& saved) {
  std::vector<Tensor> needs;
  for (const LayerTensor& each : tensors_of(saved.config, saved.shape))
    for (Index layer = 0; each.name == kNeeds && layer < saved.shape.num_layers; ++layer) {
      needs.push_back(saved.tensor(layer, std::string(kNeeds), each.shape));
      for (const Real need : needs.back().span())
        if (!std::isfinite(need) || need < 0)
          fail("{}: layer {}: the need of a head is {}, expected 0 or more", saved.where, layer,
               need);
    }
  return needs;
}

std::string layer_path(Index layer) { return fmt::format("/focus/layer_{:03}", layer); }

std::vector<ConfigField> stored_fields(FocusConfig& config) {
  std::vector<ConfigField> fields = config_fields(config);
  std::erase_if(fields, [&](const ConfigField& field) {
    const std::string section = field.key.substr(0, field.key.find('.'));
    return section != config.grouping.name &&
           std::ranges::find(config.groupings, section, &SettingsSection::name) !=
               config.groupings.end();
  });
  return fields;
}

Index SavedFocus::num_parameters() const {
  Index of_layer = 0;
  for (const LayerTensor& each : tensors_of(config, shape))
    if (each.is_parameter) of_layer += each.shape.size();
  return shape.num_layers * of_layer;
}

bool has_focus(const fs::path& folder) { return is_there(folder / kFocusConfigFile); }

bool is_focus_alone(const fs::path& path) {
  if (!fs::exists(path)) return false;
  if (fs::is_directory(path)) return has_focus(path) && !is_there(path / "config.json");
  if (is_gguf(path)) return false;
  const StoreReader store(path);
  return store.has("/focus") && !store.has("/model");
}

SavedFocus open_focus(const StoreReader& store) {
  SavedFocus saved;
  saved.where = store.describe();
  if (!store.has("/focus"))
    fail("{}: holds no Focus adapter (kind \"{}\")", saved.where, store.kind());
  saved.base_fingerprint = store.string_attribute("/focus", "base_fingerprint");
  read_config_text(store.text("/focus/config.yaml"), saved.where + ": /focus/config.yaml", {},
                   saved.config);
  check_settings(saved);
  saved.shape.num_layers = store.int_attribute("/focus", "num_layers");
  for_each_size(saved.shape, saved.config,
                [&](const char* name, Index& size) { size = store.int_attribute("/focus", name); });
  for (Index i = 0; i < std::min(saved.shape.num_layers, kMostLayers); ++i)
    saved.updates.push_back(store.int_attribute(layer_path(i), "updates"));
  if (store.has_attribute("/focus", kFittedContext))
    saved.fitted_context = store.int_attribute("/focus", kFittedContext);
  saved.tensor = [store](Index layer, const std::string& name, const Shape& shape) {
    return store.tensor(layer_path(layer) + "/" + name, shape);
  };
  check_sizes(saved);
  return saved;
}

SavedFocus open_focus_folder(const fs::path& folder) {
  const fs::path config_path = folder / kFocusConfigFile;
  SavedFocus saved;
  saved.where = config_path.string();
  if (!is_there(config_path))
    fail("{}: has no {}; an adapter folder is written by focus export", folder.string(),
         kFocusConfigFile);
  check_is_file(config_path);
  if (fs::file_size(config_path) > kMostConfigBytes)
    fail("{}: more than {} bytes are too many for settings", saved.where, kMostConfigBytes);
  const nlohmann::json json = parse_strict_json(read_text_file(config_path), saved.where);
  const JsonView view(json, saved.where);
  const std::int64_t version = view.at("format_version").integer(1 << 20);
  if (version != kFocusFolderVersion)
    fail("{}: written in format version {}, but this program reads version {}", saved.where,
         version, kFocusFolderVersion);
  saved.base_fingerprint = view.at("base_model_fingerprint").string();
  saved.shape.num_layers = view.at("num_hidden_layers").integer(kMostLayers + 1);
  const JsonView updates = view.at("carried_updates");
  for (std::size_t i = 0; i < updates.array_size(); ++i)
    saved.updates.push_back(updates.item(i).integer(std::int64_t{1} << 62));
  if (json.contains(kFittedContext))
    saved.fitted_context = view.at(kFittedContext).integer(kMostContext);
  // What is left beside the sizes are settings; JSON is YAML, so the strict reader of configs reads
  // them.
  nlohmann::json settings = json;
  for (const char* key : {"format_version", "base_model_fingerprint", "num_hidden_layers",
                          "hidden_size", "num_key_value_heads", "head_dim", "num_attention_heads",
                          "carried_updates", kFittedContext})
    settings.erase(key);
  read_config_text(settings.dump(), saved.where, {}, saved.config);
  check_settings(saved);
  for_each_size(saved.shape, saved.config, [&](const char* name, Index& size) {
    size = view.at(name).integer(kMostWidth + 1);
  });
  check_sizes(saved);
  const std::shared_ptr<TensorSource> weights =
      std::make_shared<SafetensorsFile>(folder / kFocusWeightsFile);
  saved.tensor = [weights](Index layer, const std::string& name, const Shape& shape) {
    return read_shaped(*weights, fmt::format("layers.{}.{}", layer, name), shape);
  };
  return saved;
}

SavedFocus open_focus(const fs::path& path) {
  if (!fs::exists(path))
    fail(
        "{}: no such file or folder; an adapter is focus.h5 of focus train, or its folder from "
        "focus export",
        path.string());
  if (is_gguf(path))
    fail("{}: a GGUF file holds no Focus adapter; focus merge merges a LoRA into its base",
         path.string());
  return fs::is_directory(path) ? open_focus_folder(path) : open_focus(StoreReader(path));
}

}  // namespace focus
