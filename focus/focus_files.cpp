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

/// Names of a layer's tensors.
std::span<const char* const> tensors_of(const FocusConfig& config) {
  static constexpr std::array<const char*, 3> kTokens = {"projection", "centroids", "potentials"};
  static constexpr std::array<const char*, 5> kKeys = {"centroids", "bias", "beta", "temperature",
                                                       "spread"};
  if (config.routing == RoutingSpace::keys) return kKeys;
  return kTokens;
}

std::string layer_path(Index layer) { return fmt::format("/focus/layer_{:03}", layer); }

Shape shape_of(const SavedFocus& saved, std::string_view name) {
  const Index groups = saved.config.num_groups, routing_dim = saved.config.routing_dim;
  if (saved.config.routing == RoutingSpace::keys) {
    if (name == "temperature" || name == "spread") return {1};
    if (name == "centroids") return {saved.shape.kv_heads, groups, saved.shape.head_dim};
    return {saved.shape.kv_heads, groups};
  }
  if (name == "projection") return {saved.shape.hidden_size, routing_dim};
  if (name == "centroids") return {groups, routing_dim};
  return {groups};
}

/// Of a layer's tensors the one of that name.
Tensor& tensor_of(FocusModel& focus, Index layer, std::string_view name) {
  const auto i = static_cast<std::size_t>(layer);
  if (focus.groups_keys()) {
    KeyGroups& groups = focus.key_groups().at(i);
    if (name == "temperature") return groups.temperature;
    if (name == "spread") return groups.spread;
    if (name == "centroids") return groups.centroids.mutable_value();
    return (name == "bias" ? groups.bias : groups.beta).mutable_value();
  }
  FocusLayer& of = focus.layers().at(i);
  if (name == "projection") return of.projection.mutable_value();
  if (name == "centroids") return of.centroids.mutable_value();
  return of.potentials;
}

std::int64_t& updates_of(FocusModel& focus, Index layer) {
  const auto i = static_cast<std::size_t>(layer);
  return focus.groups_keys() ? focus.key_groups().at(i).updates : focus.layers().at(i).updates;
}

/// Sizes of a shape by their names in files: those of groups of keys only where there are such.
template <class F>
void for_each_size(FocusShape& shape, RoutingSpace routing, F&& f) {
  f("hidden_size", shape.hidden_size);
  if (routing != RoutingSpace::keys) return;
  f("num_key_value_heads", shape.kv_heads);
  f("head_dim", shape.head_dim);
}

void check_sizes(const SavedFocus& saved) {
  const Index layers = saved.shape.num_layers;
  if (layers < 1 || layers > kMostLayers) fail("{}: {} layers cannot be", saved.where, layers);
  FocusShape shape = saved.shape;
  for_each_size(shape, saved.config.routing, [&](const char* name, Index size) {
    if (size < 1 || size > kMostWidth) fail("{}: a {} of {} cannot be", saved.where, name, size);
  });
  if (static_cast<Index>(saved.updates.size()) != layers)
    fail("{}: carried_updates has {} numbers for {} layers", saved.where, saved.updates.size(),
         layers);
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

Index SavedFocus::num_parameters() const {
  const Index of_layer = config.routing == RoutingSpace::keys
                             ? shape.kv_heads * config.num_groups * (shape.head_dim + 2)
                             : (shape.hidden_size + config.num_groups) * Index{config.routing_dim};
  return shape.num_layers * of_layer;
}

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
  saved.shape.num_layers = store.int_attribute("/focus", "num_layers");
  for_each_size(saved.shape, saved.config.routing,
                [&](const char* name, Index& size) { size = store.int_attribute("/focus", name); });
  for (Index i = 0; i < std::min(saved.shape.num_layers, kMostLayers); ++i)
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
  saved.shape.num_layers = view.at("num_hidden_layers").integer(kMostLayers + 1);
  const auto routing =
      json.value("routing", "hidden") == "keys" ? RoutingSpace::keys : RoutingSpace::hidden;
  for_each_size(saved.shape, routing, [&](const char* name, Index& size) {
    size = view.at(name).integer(kMostWidth + 1);
  });
  const JsonView updates = view.at("carried_updates");
  for (std::size_t i = 0; i < updates.array_size(); ++i)
    saved.updates.push_back(updates.item(i).integer(std::int64_t{1} << 62));
  for (const char* key : {"format_version", "base_model_fingerprint", "num_hidden_layers",
                          "hidden_size", "num_key_value_heads", "head_dim", "carried_updates"})
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
  for (const char* name : tensors_of(saved.config)) saved.tensor(0, name, shape_of(saved, name));
  Rng rng(0);
  auto focus = std::make_unique<FocusModel>(saved.config, saved.shape, rng);
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
  const Index layers = focus.shape().num_layers;
  check(static_cast<Index>(saved.updates.size()) == layers, "{}: {} layers, but {} are wanted",
        saved.where, saved.updates.size(), layers);
  for (Index i = 0; i < layers; ++i) {
    for (const char* name : tensors_of(focus.config())) {
      Tensor& value = tensor_of(focus, i, name);
      const Tensor stored = saved.tensor(i, name, value.shape());
      std::ranges::copy(stored.span(), value.data());
    }
    updates_of(focus, i) = saved.updates[static_cast<std::size_t>(i)];
  }
}

void write_focus(StoreWriter& store, FocusModel& focus, const std::string& base_fingerprint) {
  store.attribute("/focus", "base_fingerprint", base_fingerprint);
  FocusShape shape = focus.shape();
  store.attribute("/focus", "num_layers", shape.num_layers);
  for_each_size(shape, focus.config().routing,
                [&](const char* name, Index size) { store.attribute("/focus", name, size); });
  store.text("/focus/config.yaml", dump_recipe(focus.config()));
  for (Index i = 0; i < shape.num_layers; ++i) {
    const std::string path = layer_path(i);
    for (const char* name : tensors_of(focus.config()))
      store.tensor(path + "/" + name, tensor_of(focus, i, name));
    store.attribute(path, "updates", updates_of(focus, i));
  }
}

void write_focus_folder(const fs::path& folder, FocusModel& focus,
                        const std::string& base_fingerprint) {
  FocusShape shape = focus.shape();
  nlohmann::ordered_json json = {{"format_version", kFocusFolderVersion},
                                 {"base_model_fingerprint", base_fingerprint},
                                 {"num_hidden_layers", shape.num_layers}};
  for_each_size(shape, focus.config().routing,
                [&](const char* name, Index size) { json[name] = size; });
  json["carried_updates"] = nlohmann::ordered_json::array();
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (Index i = 0; i < shape.num_layers; ++i) {
    json["carried_updates"].push_back(updates_of(focus, i));
    for (const char* name : tensors_of(focus.config()))
      tensors.emplace_back(fmt::format("layers.{}.{}", i, name), tensor_of(focus, i, name));
  }
  FocusConfig config = focus.config();
  json.update(settings_json(recipe_fields(config)));
  write_safetensors(folder / kFocusWeightsFile, std::move(tensors), {{"format", "pt"}});
  write_file_durably(folder / kFocusConfigFile, std::string_view(json.dump(2) + "\n"));
}

}  // namespace focus
