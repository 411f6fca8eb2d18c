#include "focus/train/rival_io.h"

#include "data/settings/recipe.h"
#include "focus/train/rival_spec.h"
#include "autograd/check.h"

namespace focus {
namespace {

std::string layer_path(std::size_t layer) { return fmt::format("/rival/layer_{:03}", layer); }

}  // namespace

void write_rival(StoreWriter& store, const RivalModel& rival) {
  store.attribute("/rival", "kind", kind_of(rival.config()));
  store.text("/rival/config.yaml",
             std::visit([](const auto& config) { return dump_recipe(config); }, rival.config()));
  for (std::size_t i = 0; i < rival.layers.size(); ++i) {
    const RivalModel::Layer& layer = rival.layers[i];
    store.attribute(layer_path(i), "updates", layer.updates);
    if (layer.constants.defined()) store.tensor(layer_path(i) + "/constants", layer.constants);
  }
}

std::unique_ptr<RivalModel> read_rival(const StoreReader& store, const ModelConfig& model) {
  const std::string kind = store.string_attribute("/rival", "kind");
  RivalConfig config = rival_of_kind(kind, store.describe());
  std::visit(
      [&](auto& settings) {
        read_recipe_text(store.text("/rival/config.yaml"),
                         store.describe() + ": /rival/config.yaml", {}, settings);
      },
      config);
  auto rival = std::make_unique<RivalModel>(std::move(config), model);
  restore_rival(store, *rival);
  return rival;
}

void restore_rival(const StoreReader& store, RivalModel& rival) {
  for (std::size_t i = 0; i < rival.layers.size(); ++i) {
    RivalModel::Layer& layer = rival.layers[i];
    layer.updates = store.int_attribute(layer_path(i), "updates");
    if (layer.constants.defined())
      layer.constants = store.tensor(layer_path(i) + "/constants", layer.constants.shape());
  }
}

}  // namespace focus
