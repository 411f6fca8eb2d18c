#include "autograd/base/check.h"
#include "focus/models/model_format.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

StoreReader open_file_of_model(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (fs::is_regular_file(path) &&
      (ending == ".safetensors" || ending == ".json" || ending == ".bin" || ending == ".pt"))
    fail("{}: is a file in a model folder; give the folder, {}", path.string(),
         fs::absolute(path).parent_path().string());
  return StoreReader(path);
}

std::unique_ptr<Tokenizer> read_tokenizer(const StoreReader& store) {
  if (!store.has("/tokenizer")) return nullptr;
  TokenizerFiles files;
  for (const std::string& name : store.list("/tokenizer"))
    files[name] = store.text("/tokenizer/" + name);
  return make_tokenizer(store.string_attribute("/tokenizer", "kind"), files, store.describe());
}

ModelFiles open_checkpoint(const fs::path& path, bool own_tokenizer) {
  const StoreReader store = open_file_of_model(path);
  if (!store.has("/model"))
    fail(
        "{}: a checkpoint file of kind \"{}\" holds no model; give the base model here and this "
        "file as the adapter",
        path.string(), store.kind());
  ModelFiles files;
  files.config = parse_model_config(store.text("/config.json"), path.string() + ": config.json");
  files.weights = store.source("/model");
  if (store.has_attribute("/model", "fingerprint"))
    files.stored_fingerprint = store.string_attribute("/model", "fingerprint");
  else
    files.identity.push_back(identity_of(path));
  if (own_tokenizer) files.tokenizer = read_tokenizer(store);
  files.side_files = read_side_files(store);
  files.adapters = open_adapters(store, files.config);
  return files;
}

std::vector<SavedAdapter> open_adapters_of_checkpoint(const fs::path& path,
                                                      const ModelConfig& shape) {
  const StoreReader store = open_file_of_model(path);
  std::vector<SavedAdapter> saved = open_adapters(store, shape);
  if (saved.empty()) fail("{}: holds no adapter (kind \"{}\")", store.describe(), store.kind());
  return saved;
}

}  // namespace

ModelFormat checkpoint_format() {
  return {.is = [](const fs::path&) { return true; },
          .open = open_checkpoint,
          .open_adapters = open_adapters_of_checkpoint};
}

}  // namespace focus
