#include "focus/method/focus_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/gguf/gguf.h"
#include "data/settings/config.h"
#include "data/tensors/checkpoint_folder.h"
#include "data/tensors/safetensors.h"
#include "data/text/text.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr Index kMostLayers = 4096, kMostWidth = 1 << 20, kMostContext = Index{1} << 32;
constexpr std::uintmax_t kMostConfigBytes = 1 << 20;
constexpr std::int64_t kFolderVersion = 1;

/// Sizes of a shape by their names in files: those of a key head's groups where there are such.
template <class F>
void for_each_size(FocusShape& shape, const FocusConfig& config, F&& f) {
  f("hidden_size", shape.hidden_size);
  if (!grouping_kind(config).is_per_head) return;
  f("num_key_value_heads", shape.kv_heads);
  f("head_dim", shape.head_dim);
  if (config.keys().head_budgets == HeadBudgets::measured) f("num_attention_heads", shape.heads);
}

std::vector<LayerTensor> tensors_of(const SavedFocus& saved) {
  return grouping_kind(saved.config).tensors(saved.config, saved.shape);
}

/// The settings that files hold: those of the config's own grouping alone.
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

/// Checks what has been read, and reads the sizes by size_of(name).
template <class F>
void finish(SavedFocus& saved, F&& size_of) {
  try {
    saved.config.validate();
  } catch (const std::invalid_argument& error) {
    fail("{}: {}", saved.where, error.what());
  }
  const Index layers = saved.shape.num_layers;
  if (layers < 1 || layers > kMostLayers) fail("{}: {} layers are not valid", saved.where, layers);
  for_each_size(saved.shape, saved.config, [&](const char* name, Index& size) {
    size = size_of(name);
    if (size < 1 || size > kMostWidth) fail("{}: {} {} is not valid", saved.where, name, size);
  });
  if (saved.fitted_context < 0 || saved.fitted_context > kMostContext)
    fail("{}: {} {} is not valid", saved.where, kFittedContext, saved.fitted_context);
  if (std::ssize(saved.updates) != layers)
    fail("{}: carried_updates has {} values for {} layers", saved.where, saved.updates.size(),
         layers);
}

}  // namespace

std::vector<Tensor> measured_of_heads(const SavedFocus& saved, std::string_view name) {
  std::vector<Tensor> measured;
  for (const LayerTensor& each : tensors_of(saved))
    for (Index layer = 0; each.name == name && layer < saved.shape.num_layers; ++layer) {
      measured.push_back(saved.tensor(layer, std::string(name), each.shape));
      for (const Real x : measured.back().span())
        if (!std::isfinite(x) || x < 0 || (name == kSummaryWidth && x > 1))
          fail("{}: layer {}: the {} of a head is {}, expected {}", saved.where, layer, name, x,
               name == kNeeds ? "0 or more" : "0 to 1");
    }
  return measured;
}

std::string layer_path(Index layer) { return fmt::format("/focus/layer_{:03}", layer); }

Index SavedFocus::num_parameters() const {
  Index of_layer = 0;
  for (const LayerTensor& each : tensors_of(*this))
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
  saved.shape.num_layers = store.int_attribute("/focus", "num_layers");
  for (Index i = 0; i < std::min(saved.shape.num_layers, kMostLayers); ++i)
    saved.updates.push_back(store.int_attribute(layer_path(i), "updates"));
  if (store.has_attribute("/focus", kFittedContext))
    saved.fitted_context = store.int_attribute("/focus", kFittedContext);
  saved.tensor = [store](Index layer, const std::string& name, const Shape& shape) {
    return store.tensor(layer_path(layer) + "/" + name, shape);
  };
  finish(saved, [&](const char* name) { return store.int_attribute("/focus", name); });
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
  if (version != kFolderVersion)
    fail("{}: written in format version {}, but this program reads version {}", saved.where,
         version, kFolderVersion);
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
  read_config_text(json_text(settings), saved.where, {}, saved.config);
  finish(saved, [&](const char* name) { return view.at(name).integer(kMostWidth + 1); });
  const std::shared_ptr<TensorSource> weights =
      std::make_shared<SafetensorsFile>(folder / kFocusWeightsFile);
  saved.tensor = [weights](Index layer, const std::string& name, const Shape& shape) {
    const std::string stored = fmt::format("layers.{}.{}", layer, name);
    const TensorInfo* info = weights->find(stored);
    if (info == nullptr) fail("{}: tensor {} is missing", weights->describe(), stored);
    if (!std::ranges::equal(info->shape, shape.dims()))
      fail("{}: tensor {} has shape [{}], but {} requires {}", weights->describe(), stored,
           fmt::join(info->shape, ", "), kFocusConfigFile, shape);
    return weights->read(stored);
  };
  return saved;
}

SavedFocus open_focus(const fs::path& given) {
  const fs::path path = result_of_run(given);
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

std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved) {
  // The first layer's shapes are held against the file before memory is taken for all.
  for (const LayerTensor& tensor : tensors_of(saved))
    saved.tensor(0, std::string(tensor.name), tensor.shape);
  Rng rng(0);
  auto focus = std::make_unique<FocusModel>(saved.config, saved.shape, rng);
  restore_focus(saved, *focus);
  return focus;
}

std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved, const std::string& fingerprint,
                                       const std::string& base) {
  check_base(saved.where, saved.base_fingerprint, fingerprint, base);
  return read_focus(saved);
}

SavedAdapter saved_adapter(const SavedFocus& saved) {
  return {.kind = &adapter_kind("focus"),
          .where = saved.where,
          .name = "Focus",
          .base_fingerprint = saved.base_fingerprint,
          .read = [saved](Decoder&) -> std::unique_ptr<Adapter> { return read_focus(saved); }};
}

AdapterKind focus_kind() {
  return {.name = "focus",
          .help = "the method's settings",
          .defaults = FocusConfig{},
          .role = AdapterRole::focus,
          .store_group = "/focus",
          .make = [](const AnySettings& settings, const ModelConfig& shape, Decoder*,
                     Rng& rng) -> std::unique_ptr<Adapter> {
            return std::make_unique<FocusModel>(settings.as<FocusConfig>(), FocusShape::of(shape),
                                                rng);
          },
          .open = [](const AdapterKind&, const StoreReader& store, const ModelConfig&)
              -> std::optional<SavedAdapter> { return saved_adapter(open_focus(store)); }};
}

void restore_focus(const SavedFocus& saved, FocusModel& focus) {
  const Index layers = focus.shape().num_layers;
  for (const std::string_view name : {kNeeds, kSummaryWidth}) measured_of_heads(saved, name);
  check(std::ssize(saved.updates) == layers, "{}: {} layers, but {} are expected", saved.where,
        saved.updates.size(), layers);
  focus.grouping().fitted_context() = saved.fitted_context;
  for (Index i = 0; i < layers; ++i) {
    focus.grouping().visit_tensors(i, [&](std::string_view name, Tensor& value) {
      const Tensor stored = saved.tensor(i, std::string(name), value.shape());
      std::ranges::copy(stored.span(), value.data());
    });
    focus.grouping().updates(i) = saved.updates[i];
  }
}

void write_focus(StoreWriter& store, FocusModel& focus, const std::string& base_fingerprint) {
  store.attribute("/focus", "base_fingerprint", base_fingerprint);
  FocusShape shape = focus.shape();
  store.attribute("/focus", "num_layers", shape.num_layers);
  for_each_size(shape, focus.config(),
                [&](const char* name, Index size) { store.attribute("/focus", name, size); });
  if (const std::int64_t context = focus.grouping().fitted_context(); context > 0)
    store.attribute("/focus", kFittedContext, context);
  FocusConfig config = focus.config();
  store.text("/focus/config.yaml", dump_config_fields(stored_fields(config), /*with_help=*/false));
  for (Index i = 0; i < shape.num_layers; ++i) {
    const std::string path = layer_path(i);
    focus.grouping().visit_tensors(i, [&](std::string_view name, Tensor& value) {
      store.tensor(fmt::format("{}/{}", path, name), value);
    });
    store.attribute(path, "updates", focus.grouping().updates(i));
  }
}

void write_focus_folder(const fs::path& folder, FocusModel& focus,
                        const std::string& base_fingerprint) {
  FocusShape shape = focus.shape();
  nlohmann::ordered_json json = {{"format_version", kFolderVersion},
                                 {"base_model_fingerprint", base_fingerprint},
                                 {"num_hidden_layers", shape.num_layers}};
  for_each_size(shape, focus.config(), [&](const char* name, Index size) { json[name] = size; });
  if (const std::int64_t context = focus.grouping().fitted_context(); context > 0)
    json[kFittedContext] = context;
  json["carried_updates"] = nlohmann::ordered_json::array();
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (Index i = 0; i < shape.num_layers; ++i) {
    json["carried_updates"].push_back(focus.grouping().updates(i));
    focus.grouping().visit_tensors(i, [&](std::string_view name, Tensor& value) {
      tensors.emplace_back(fmt::format("layers.{}.{}", i, name), value);
    });
  }
  FocusConfig config = focus.config();
  json.update(settings_json(stored_fields(config)));
  write_safetensors(folder / kFocusWeightsFile, std::move(tensors), {{"format", "pt"}});
  write_file_durably(folder / kFocusConfigFile, std::string_view(json_text(json, 2) + "\n"));
}

}  // namespace focus
