#include "focus/focus_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/files/safetensors.h"
#include "data/settings/settings_json.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

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

}  // namespace

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
