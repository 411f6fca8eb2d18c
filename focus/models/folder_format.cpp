#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "data/tensors/safetensors.h"
#include "data/text/text.h"
#include "focus/adapters/lora/lora_files.h"
#include "focus/models/model_format.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) { return fs::is_directory(path); }

/// A folder of the Hugging Face cache has the model in snapshots/, under its commit's name.
void refuse_cache_folder(const fs::path& folder) {
  if (!fs::is_directory(folder / "snapshots")) return;
  std::string found = (folder / "snapshots" / "COMMIT").string();
  for (const auto& entry : fs::directory_iterator(folder / "snapshots"))
    found = entry.path().string();
  fail("{}: is a folder of the Hugging Face cache; the model is in {}", folder.string(), found);
}

ModelFiles open_folder(const fs::path& folder, bool own_tokenizer) {
  refuse_cache_folder(folder);
  const fs::path config_path = folder / "config.json";
  if (!is_there(config_path))
    fail("{}: has no config.json; a Hugging Face folder holds config.json and model.safetensors",
         folder.string());
  ModelFiles files;
  files.config = parse_model_config(read_text_file(config_path), config_path.string());
  files.weights = open_safetensors_folder(folder);
  files.identity.push_back(identity_of(config_path));
  for (const auto& path : files.weights->files()) files.identity.push_back(identity_of(path));
  if (own_tokenizer) files.tokenizer = find_tokenizer(folder);
  files.side_files = read_side_files(folder);
  if (has_focus(folder)) files.adapters.push_back(saved_adapter(open_focus_folder(folder)));
  return files;
}

std::vector<SavedAdapter> open_adapters_of_folder(const fs::path& folder, const ModelConfig&) {
  refuse_cache_folder(folder);
  if (has_focus(folder)) return {saved_adapter(open_focus_folder(folder))};
  return {saved_lora(folder, read_peft_adapter)};
}

}  // namespace

ModelFormat folder_format() {
  return {.is = is_folder, .open = open_folder, .open_adapters = open_adapters_of_folder};
}

}  // namespace focus
