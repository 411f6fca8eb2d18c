#include "focus/focus_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "autograd/check.h"
#include "data/files/durable_file.h"
#include "data/files/json_reader.h"
#include "data/files/safetensors.h"
#include "data/settings/settings_json.h"
#include "data/text/text.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr Index kMostLayers = 4096, kMostWidth = 1 << 20;
constexpr std::uintmax_t kMostConfigBytes = 1 << 20;
constexpr std::array kTensors = {"projection", "centroids", "potentials"};

std::string layer_path(Index layer) { return fmt::format("/focus/layer_{:03}", layer); }

Shape shape_of(const SavedFocus& saved, const std::string& name) {
  const Index groups = saved.config.num_groups, routing_dim = saved.config.routing_dim;
  if (name == "projection") return {saved.hidden_size, routing_dim};
  if (name == "centroids") return {groups, routing_dim};
  return {groups};
}

Tensor& tensor_of(FocusLayer& layer, const std::string& name) {
  if (name == "projection") return layer.projection.mutable_value();
  if (name == "centroids") return layer.centroids.mutable_value();
  return layer.potentials;
}

void check_sizes(const SavedFocus& saved) {
  if (saved.num_layers < 1 || saved.num_layers > kMostLayers || saved.hidden_size < 1 ||
      saved.hidden_size > kMostWidth)
    fail("{}: {} layers of width {} cannot be", saved.where, saved.num_layers, saved.hidden_size);
  if (static_cast<Index>(saved.updates.size()) != saved.num_layers)
    fail("{}: carried_updates has {} numbers for {} layers", saved.where, saved.updates.size(),
         saved.num_layers);
}

Tensor read_shaped(const TensorSource& source, const std::string& name, const Shape& shape) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) fail("{}: tensor {} is missing", source.describe(), name);
  if (!std::ranges::equal(info->shape, shape.dims()))
    fail("{}: tensor {} has shape [{}], but {} asks for {}", source.describe(), name,
         fmt::join(info->shape, ", "), kFocusConfigFile, shape);
  return source.read(name);
}

}  // namespace

bool has_focus(const fs::path& folder) { return fs::exists(folder / kFocusConfigFile); }

bool is_focus_alone(const fs::path& path) {
  if (!fs::exists(path)) return false;
  if (fs::is_directory(path)) return has_focus(path) && !fs::exists(path / "config.json");
  const StoreReader store(path);
  return store.has("/focus") && !store.has("/model");
}

SavedFocus open_focus(const StoreReader& store) {
  SavedFocus saved;
  saved.where = store.describe();
  if (!store.has("/focus"))
    fail("{}: holds no Focus adapter (kind \"{}\")", saved.where, store.kind());
  saved.base_fingerprint = store.string_attribute("/focus", "base_fingerprint");
  read_stored_recipe(store.text("/focus/config.yaml"), saved.where + ": /focus/config.yaml",
                     saved.config);
  saved.config.validate();
  saved.num_layers = store.int_attribute("/focus", "num_layers");
  saved.hidden_size = store.int_attribute("/focus", "hidden_size");
  for (Index i = 0; i < std::min(saved.num_layers, kMostLayers); ++i)
    saved.updates.push_back(store.int_attribute(layer_path(i), "updates"));
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
  if (!fs::exists(config_path))
    fail("{}: no {} in it; an adapter's folder is what focus export writes", folder.string(),
         kFocusConfigFile);
  if (fs::file_size(config_path) > kMostConfigBytes)
    fail("{}: more than {} bytes are no settings", saved.where, kMostConfigBytes);
  nlohmann::json json = parse_strict_json(read_text_file(config_path), saved.where);
  const JsonView view(json, saved.where);
  const std::int64_t version = view.at("format_version").integer(1 << 20);
  if (version != kFocusFolderVersion)
    fail("{}: written in format version {}, but this program reads version {}", saved.where,
         version, kFocusFolderVersion);
  saved.base_fingerprint = view.at("base_model_fingerprint").string();
  saved.num_layers = view.at("num_hidden_layers").integer(kMostLayers + 1);
  saved.hidden_size = view.at("hidden_size").integer(kMostWidth + 1);
  const JsonView updates = view.at("carried_updates");
  for (std::size_t i = 0; i < updates.array_size(); ++i)
    saved.updates.push_back(updates.item(i).integer(std::int64_t{1} << 62));
  for (const char* key : {"format_version", "base_model_fingerprint", "num_hidden_layers",
                          "hidden_size", "carried_updates"})
    json.erase(key);
  // What is left are settings; JSON is YAML, so the strict reader of recipes reads them.
  read_stored_recipe(json.dump(), saved.where, saved.config);
  saved.config.validate();
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
        "{}: no such file or folder; an adapter is what focus train writes as focus.h5, or what "
        "focus export makes of it",
        path.string());
  return fs::is_directory(path) ? open_focus_folder(path) : open_focus(StoreReader(path));
}

std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved) {
  // The first layer's shapes are held against the file before memory is taken for all.
  for (const char* name : kTensors) saved.tensor(0, name, shape_of(saved, name));
  Rng rng(0);
  auto focus = std::make_unique<FocusModel>(saved.config, saved.hidden_size, saved.num_layers, rng);
  restore_focus(saved, *focus);
  return focus;
}

std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved, const std::string& fingerprint,
                                       const std::string& base) {
  if (saved.base_fingerprint != fingerprint)
    fail("{}: made for the base with fingerprint {}, but {} has {}; use the base it was trained on",
         saved.where, saved.base_fingerprint, base, fingerprint);
  return read_focus(saved);
}

void restore_focus(const SavedFocus& saved, FocusModel& focus) {
  check(saved.updates.size() == focus.layers().size(), "{}: {} layers, but {} are wanted",
        saved.where, saved.updates.size(), focus.layers().size());
  for (std::size_t i = 0; i < focus.layers().size(); ++i) {
    FocusLayer& layer = focus.layers()[i];
    for (const char* name : kTensors) {
      Tensor& value = tensor_of(layer, name);
      const Tensor stored = saved.tensor(static_cast<Index>(i), name, value.shape());
      std::ranges::copy(stored.span(), value.data());
    }
    layer.updates = saved.updates[i];
  }
}

void write_focus(StoreWriter& store, FocusModel& focus, const std::string& base_fingerprint) {
  store.attribute("/focus", "base_fingerprint", base_fingerprint);
  store.attribute("/focus", "num_layers", static_cast<std::int64_t>(focus.layers().size()));
  store.attribute("/focus", "hidden_size", focus.layers().at(0).projection.dim(0));
  store.text("/focus/config.yaml", dump_recipe(focus.config()));
  for (std::size_t i = 0; i < focus.layers().size(); ++i) {
    FocusLayer& layer = focus.layers()[i];
    const std::string path = layer_path(static_cast<Index>(i));
    for (const char* name : kTensors) store.tensor(path + "/" + name, tensor_of(layer, name));
    store.attribute(path, "updates", layer.updates);
  }
}

void write_focus_folder(const fs::path& folder, FocusModel& focus,
                        const std::string& base_fingerprint) {
  nlohmann::ordered_json json = {
      {"format_version", kFocusFolderVersion},
      {"base_model_fingerprint", base_fingerprint},
      {"num_hidden_layers", focus.layers().size()},
      {"hidden_size", focus.layers().at(0).projection.dim(0)},
      {"carried_updates", nlohmann::ordered_json::array()},
  };
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (std::size_t i = 0; i < focus.layers().size(); ++i) {
    FocusLayer& layer = focus.layers()[i];
    json["carried_updates"].push_back(layer.updates);
    for (const char* name : kTensors)
      tensors.emplace_back(fmt::format("layers.{}.{}", i, name), tensor_of(layer, name));
  }
  FocusConfig config = focus.config();
  json.update(settings_json(recipe_fields(config)));
  write_safetensors(folder / kFocusWeightsFile, std::move(tensors), {{"format", "pt"}});
  write_file_durably(folder / kFocusConfigFile, std::string_view(json.dump(2) + "\n"));
}

}  // namespace focus
