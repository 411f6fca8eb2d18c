#include "apps/model_io.h"

#include "apps/recipe.h"
#include "apps/rival_spec.h"
#include "autograd/check.h"
#include "data/checksum.h"
#include "data/safetensors.h"
#include "data/text.h"
#include "layers/weights.h"

namespace focus {
namespace {

std::string layer_path(std::size_t layer) { return fmt::format("/focus/layer_{:03}", layer); }
std::string rival_layer_path(std::size_t layer) { return fmt::format("/rival/layer_{:03}", layer); }

void add_to_fingerprint(Checksum& checksum, const std::string& name, const Variable& p) {
  checksum.update(name);
  checksum.update(std::as_bytes(p.value().span()));
}

/// Fills the decoder and takes its fingerprint on the way: with bf16 there is never more than one
/// matrix in float32.
void fill(LoadedModel& model, const TensorSource& source, Compute compute) {
  Checksum checksum;
  checksum.update(write_model_config(model.decoder->config()));
  load_weights(*model.decoder, source, [&](const std::string& name, Variable& p) {
    add_to_fingerprint(checksum, name, p);
    if (compute == Compute::bf16) store_in_bf16(p);
  });
  model.fingerprint = checksum.hex();
}

LoadedModel load_folder(const std::filesystem::path& folder, Compute compute) {
  LoadedModel model;
  const auto config_path = folder / "config.json";
  if (!std::filesystem::exists(config_path))
    fail("{}: no config.json in it; a Hugging Face folder holds config.json and model.safetensors",
         folder.string());
  model.decoder = std::make_unique<Decoder>(
      parse_model_config(read_text_file(config_path), config_path.string()));
  fill(model, *open_safetensors_folder(folder), compute);
  model.tokenizer = find_tokenizer(folder);
  return model;
}

LoadedModel load_store(const std::filesystem::path& path, Compute compute) {
  LoadedModel model;
  const StoreReader store(path);
  if (!store.has("/model"))
    fail(
        "{}: a store of kind \"{}\" holds no model; name the base model here, and this file as the "
        "adapter",
        path.string(), store.kind());
  model.decoder = std::make_unique<Decoder>(
      parse_model_config(store.text("/config.json"), path.string() + ": config.json"));
  fill(model, *store.source("/model"), compute);
  if (store.has("/tokenizer")) {
    TokenizerFiles files;
    for (const std::string& name : store.list("/tokenizer"))
      files[name] = store.text("/tokenizer/" + name);
    model.tokenizer =
        make_tokenizer(store.string_attribute("/tokenizer", "kind"), files, path.string());
  }
  return model;
}

}  // namespace

std::optional<std::int32_t> LoadedModel::document_start() const {
  if (decoder->config().bos_token_id)
    return static_cast<std::int32_t>(*decoder->config().bos_token_id);
  return tokenizer ? tokenizer->bos_id() : std::nullopt;
}

std::optional<std::int32_t> LoadedModel::document_end() const {
  if (decoder->config().eos_token_id)
    return static_cast<std::int32_t>(*decoder->config().eos_token_id);
  return tokenizer ? tokenizer->eos_id() : std::nullopt;
}

const Tokenizer& LoadedModel::require_tokenizer() const {
  if (!tokenizer)
    fail("{}: no tokenizer in it; name one (a tokenizer.json, a tokenizer.model, or bytes)", where);
  return *tokenizer;
}

LoadedModel load_model(const std::filesystem::path& path, const std::string& tokenizer,
                       Compute compute) {
  if (!std::filesystem::exists(path))
    fail("{}: no such file or folder; a model is a store (.h5) or a Hugging Face folder",
         path.string());
  LoadedModel model =
      std::filesystem::is_directory(path) ? load_folder(path, compute) : load_store(path, compute);
  model.where = path.string();
  if (!tokenizer.empty()) model.tokenizer = load_tokenizer(tokenizer);
  const Index vocab_size = model.decoder->config().vocab_size;
  if (model.tokenizer && model.tokenizer->vocab_size() > vocab_size)
    fail("{}: the tokenizer has {} ids, but the model's vocab_size is {}", model.where,
         model.tokenizer->vocab_size(), vocab_size);
  if (!std::filesystem::is_directory(path)) {
    const StoreReader store(path);
    if (store.has("/focus")) {
      model.focus = read_focus(store, *model.decoder, model.fingerprint, model.where);
      model.focus->compose(*model.decoder);
    }
    if (store.has("/rival")) {
      model.rival = read_rival(store, *model.decoder);
      model.rival->compose(*model.decoder);
    }
  }
  return model;
}

std::string model_fingerprint(Decoder& decoder) {
  Checksum checksum;
  checksum.update(write_model_config(decoder.config()));
  for_each_parameter(decoder, [&](const std::string& name, Variable& p) {
    add_to_fingerprint(checksum, name, p);
  });
  return checksum.hex();
}

void write_model(StoreWriter& store, Decoder& decoder, const Tokenizer* tokenizer) {
  store.text("/config.json", write_model_config(decoder.config()));
  if (tokenizer != nullptr) {
    store.attribute("/tokenizer", "kind", tokenizer->kind());
    store.attribute("/tokenizer", "fingerprint", tokenizer->fingerprint());
    for (const auto& [name, bytes] : tokenizer->files()) store.text("/tokenizer/" + name, bytes);
  }
  store.attribute("/model", "fingerprint", model_fingerprint(decoder));
  for_each_published(
      decoder, [](const Variable& p) { return p.value(); },
      [&](const std::string& name, const Tensor& tensor) {
        store.tensor(store_path("/model", name), tensor);
      });
}

void write_focus(StoreWriter& store, FocusModel& focus, const std::string& base_fingerprint) {
  store.attribute("/focus", "base_fingerprint", base_fingerprint);
  store.attribute("/focus", "num_layers", static_cast<std::int64_t>(focus.layers().size()));
  store.attribute("/focus", "hidden_size", focus.layers().at(0).projection.dim(0));
  store.text("/focus/config.yaml", dump_recipe(focus.config()));
  for (std::size_t i = 0; i < focus.layers().size(); ++i) {
    const FocusLayer& layer = focus.layers()[i];
    store.tensor(layer_path(i) + "/projection", layer.projection.value());
    store.tensor(layer_path(i) + "/centroids", layer.centroids.value());
    store.tensor(layer_path(i) + "/potentials", layer.potentials);
    store.attribute(layer_path(i), "updates", layer.updates);
  }
}

std::unique_ptr<FocusModel> read_focus(const StoreReader& store, const Decoder& decoder,
                                       const std::string& fingerprint, const std::string& where) {
  const std::string path = store.describe();
  if (!store.has("/focus")) fail("{}: holds no Focus adapter (kind \"{}\")", path, store.kind());
  const std::string base = store.string_attribute("/focus", "base_fingerprint");
  if (base != fingerprint)
    fail("{}: made for the base with fingerprint {}, but {} has {}; use the base it was trained on",
         path, base, where, fingerprint);
  FocusConfig config;
  read_recipe_text(store.text("/focus/config.yaml"), path + ": /focus/config.yaml", {}, config);
  Rng rng(0);
  auto focus = std::make_unique<FocusModel>(config, decoder.config().hidden_size,
                                            decoder.config().num_hidden_layers, rng);
  restore_focus(store, *focus);
  return focus;
}

void restore_focus(const StoreReader& store, FocusModel& focus) {
  for (std::size_t i = 0; i < focus.layers().size(); ++i) {
    FocusLayer& layer = focus.layers()[i];
    const auto restore = [&](Tensor& value, const char* name) {
      const Tensor stored = store.tensor(layer_path(i) + "/" + name, value.shape());
      std::ranges::copy(stored.span(), value.data());
    };
    restore(layer.projection.mutable_value(), "projection");
    restore(layer.centroids.mutable_value(), "centroids");
    restore(layer.potentials, "potentials");
    layer.updates = store.int_attribute(layer_path(i), "updates");
  }
}

void write_rival(StoreWriter& store, const RivalModel& rival) {
  store.attribute("/rival", "kind", kind_of(rival.config()));
  store.text("/rival/config.yaml",
             std::visit([](const auto& config) { return dump_recipe(config); }, rival.config()));
  for (std::size_t i = 0; i < rival.layers.size(); ++i) {
    const RivalModel::Layer& layer = rival.layers[i];
    store.attribute(rival_layer_path(i), "updates", layer.updates);
    if (layer.constants.defined())
      store.tensor(rival_layer_path(i) + "/constants", layer.constants);
  }
}

std::unique_ptr<RivalModel> read_rival(const StoreReader& store, const Decoder& decoder) {
  const std::string kind = store.string_attribute("/rival", "kind");
  RivalConfig config = rival_of_kind(kind, store.describe());
  std::visit(
      [&](auto& settings) {
        read_recipe_text(store.text("/rival/config.yaml"),
                         store.describe() + ": /rival/config.yaml", {}, settings);
      },
      config);
  auto rival = std::make_unique<RivalModel>(std::move(config), decoder.config());
  restore_rival(store, *rival);
  return rival;
}

void restore_rival(const StoreReader& store, RivalModel& rival) {
  for (std::size_t i = 0; i < rival.layers.size(); ++i) {
    RivalModel::Layer& layer = rival.layers[i];
    layer.updates = store.int_attribute(rival_layer_path(i), "updates");
    if (layer.constants.defined())
      layer.constants = store.tensor(rival_layer_path(i) + "/constants", layer.constants.shape());
  }
}

std::unique_ptr<FocusModel> load_adapter(const std::filesystem::path& path, LoadedModel& model) {
  if (!std::filesystem::exists(path))
    fail("{}: no such file; an adapter is what focus train writes as focus.h5", path.string());
  if (model.rival)
    fail("{}: was trained with {}; an adapter goes onto a model without an attention of its own",
         model.where, model.rival->name());
  const StoreReader store(path);
  auto focus = read_focus(store, *model.decoder, model.fingerprint, model.where);
  focus->compose(*model.decoder);
  return focus;
}

}  // namespace focus
