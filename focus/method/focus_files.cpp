#include "focus/method/focus_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/settings/settings_json.h"
#include "data/tensors/safetensors.h"

namespace focus {
namespace fs = std::filesystem;
std::unique_ptr<FocusModel> read_focus(const SavedFocus& saved) {
  // The first layer's shapes are held against the file before memory is taken for all.
  for (const LayerTensor& tensor : tensors_of(saved.config, saved.shape))
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
  head_needs(saved);  // must be such
  check(static_cast<Index>(saved.updates.size()) == layers, "{}: {} layers, but {} are expected",
        saved.where, saved.updates.size(), layers);
  focus.grouping().fitted_context() = saved.fitted_context;
  for (Index i = 0; i < layers; ++i) {
    focus.grouping().visit_tensors(i, [&](std::string_view name, Tensor& value) {
      const Tensor stored = saved.tensor(i, std::string(name), value.shape());
      std::ranges::copy(stored.span(), value.data());
    });
    focus.grouping().updates(i) = saved.updates[static_cast<std::size_t>(i)];
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
  nlohmann::ordered_json json = {{"format_version", kFocusFolderVersion},
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
  write_file_durably(folder / kFocusConfigFile, std::string_view(json.dump(2) + "\n"));
}

}  // namespace focus
