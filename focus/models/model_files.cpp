#include "focus/models/model_files.h"

#include <algorithm>
#include <array>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/files/input_file.h"
#include "data/files/notice.h"
#include "focus/models/fingerprint.h"
#include "focus/models/model_format.h"

namespace focus {

const ModelFormat& format_of(const std::filesystem::path& path, std::string_view expected) {
  static const std::array formats = {folder_format(), gguf_format(), checkpoint_format()};
  if (!is_there(path)) fail("{}: no such file or folder; {}", path.string(), expected);
  return *std::ranges::find_if(formats, [&](const ModelFormat& each) { return each.is(path); });
}

ModelFiles open_model(const std::filesystem::path& path, const std::string& tokenizer) {
  const ModelFormat& format =
      format_of(path, "a model is a checkpoint file (.h5), a Hugging Face folder or a GGUF file");
  ModelFiles files = format.open(path, tokenizer.empty());
  files.where = path.string();
  if (has_other_head(files.config, *files.weights)) {
    files.config.tie_word_embeddings = false;
    notice(
        "{}: tie_word_embeddings is true, but its lm_head.weight differs from its embedding; the "
        "two are not tied",
        files.where);
  }
  if (!tokenizer.empty()) {
    files.tokenizer = load_tokenizer(tokenizer);
    replace_tokenizer_side_files(files.side_files, tokenizer);
  }
  if (files.tokenizer) add_tokenizer_files(files.side_files, *files.tokenizer);
  if (files.tokenizer && files.tokenizer->vocab_size() > files.config.vocab_size)
    notice(
        "{}: the tokenizer has {} ids, but the model's vocab_size is {}; texts with a larger id "
        "are refused",
        files.where, files.tokenizer->vocab_size(), files.config.vocab_size);
  files.generation = read_generation_config(files.side_files, files.where);
  return files;
}

namespace {

template <class T>
T* find_kind(const std::vector<std::unique_ptr<Adapter>>& adapters) {
  for (const auto& adapter : adapters)
    if (auto* found = dynamic_cast<T*>(adapter.get())) return found;
  return nullptr;
}

}  // namespace

const SavedAdapter* ModelFiles::attention() const {
  for (const SavedAdapter& adapter : adapters)
    if (adapter.kind->is_attention()) return &adapter;
  return nullptr;
}

std::optional<SavedFocus> ModelFiles::focus() const {
  const SavedAdapter* const own = attention();
  if (own == nullptr || own->kind->role != AdapterRole::focus) return std::nullopt;
  return open_focus(std::filesystem::path(where));
}

FocusModel* LoadedModel::focus() const { return find_kind<FocusModel>(adapters); }
LoraModel* LoadedModel::lora() const { return find_kind<LoraModel>(adapters); }
Mechanism* LoadedModel::mechanism() const { return find_kind<Mechanism>(adapters); }

Adapter& LoadedModel::attach(std::unique_ptr<Adapter> adapter) {
  adapter->attach(*decoder);
  adapters.push_back(std::move(adapter));
  return *adapters.back();
}

void LoadedModel::detach_attention() {
  std::erase_if(adapters,
                [](const auto& adapter) { return adapter_kind(adapter->kind()).is_attention(); });
}

std::optional<std::int32_t> LoadedModel::document_end() const {
  if (decoder->config().eos_token_id)
    return static_cast<std::int32_t>(*decoder->config().eos_token_id);
  return tokenizer ? tokenizer->eos_id() : std::nullopt;
}

const SideFiles& LoadedModel::side_files() const {
  static const SideFiles none;
  return files ? files->side_files : none;
}

const Tokenizer& LoadedModel::require_tokenizer() const {
  if (!tokenizer)
    fail("{}: has no tokenizer; give one (a tokenizer.json, a tokenizer.model, or bytes)", where);
  return *tokenizer;
}

void require_comparable(const LoadedModel& reference, const LoadedModel& model) {
  const ModelConfig& other = reference.decoder->config();
  if (other.vocab_size != model.decoder->config().vocab_size ||
      (reference.tokenizer != nullptr &&
       reference.tokenizer->fingerprint() != model.require_tokenizer().fingerprint()))
    fail("{}: its tokenizer differs from that of {}, so their predictions cannot be compared",
         reference.where, model.where);
  if (other.max_position_embeddings < model.decoder->config().max_position_embeddings)
    fail("{}: {} positions, but {} has {}", reference.where, other.max_position_embeddings,
         model.where, model.decoder->config().max_position_embeddings);
}

namespace {

/// Whether weights take more than half of the memory: the system may have dropped what a layer
/// needs since it was read.
bool outgrow_memory(const TensorSource& source) {
  std::size_t bytes = 0;
  for (const TensorInfo& info : source.tensors()) bytes += bytes_of(info.dtype, info.size());
  return bytes > memory_limit() / 2;
}

/// Reads an adapter for the model that it was made for, and attaches it.
void attach_saved(const SavedAdapter& saved, LoadedModel& model) {
  if (!saved.base_fingerprint.empty())
    check_base(saved.where, saved.base_fingerprint, model.fingerprint(), model.where);
  auto adapter = saved.read(*model.decoder);
  if (saved.kind->is_attention()) model.detach_attention();  // one in the place of another
  model.attach(std::move(adapter));
}

}  // namespace

LoadedModel load_model(const std::filesystem::path& path, const std::string& tokenizer,
                       Precision precision, WeightUse use) {
  auto files = std::make_shared<ModelFiles>(open_model(path, tokenizer));
  LoadedModel model;
  model.where = files->where;
  model.tokenizer = std::move(files->tokenizer);
  model.decoder = std::make_unique<Decoder>(files->config);
  std::optional<Precision> frozen;
  if (use == WeightUse::frozen) frozen = precision;
  load_weights(*model.decoder, *files->weights, frozen);
  if (frozen && outgrow_memory(*files->weights)) model.decoder->read_ahead();
  model.files = files;
  for (const SavedAdapter& saved : files->adapters) attach_saved(saved, model);
  return model;
}

const std::string& LoadedModel::fingerprint() const {
  if (fingerprint_.empty())
    fingerprint_ = files != nullptr ? fingerprint_of(*files) : model_fingerprint(*decoder);
  return fingerprint_;
}

void write_model_head(StoreWriter& store, const ModelConfig& config, const Tokenizer* tokenizer,
                      const SideFiles& side_files) {
  store.text("/config.json", write_model_config(config));
  write_side_files(store, side_files, tokenizer);
  if (tokenizer == nullptr) return;
  store.attribute("/tokenizer", "kind", tokenizer->kind());
  store.attribute("/tokenizer", "fingerprint", tokenizer->fingerprint());
  for (const auto& [name, bytes] : tokenizer->files()) store.text("/tokenizer/" + name, bytes);
}

void write_model(StoreWriter& store, LoadedModel& model) {
  Decoder& decoder = *model.decoder;
  write_model_head(store, decoder.config(), model.tokenizer.get(), model.side_files());
  store.attribute("/model", "fingerprint", model_fingerprint(decoder));
  for_each_published(
      decoder, [](const Variable& p) { return p.value(); },
      [&](const std::string& name, const Tensor& tensor) {
        store.tensor(store_path("/model", name), tensor);
      });
}

void load_adapter(const std::filesystem::path& path, LoadedModel& model) {
  const ModelFormat& format = format_of(
      path,
      "an adapter is focus.h5 or lora.h5 of focus train, a folder of focus export, a PEFT "
      "folder or a GGUF file");
  if (const Mechanism* mechanism = model.mechanism())
    fail("{}: was trained with {}; an adapter needs a model with dense attention", model.where,
         mechanism->name());
  for (const SavedAdapter& saved : format.open_adapters(path, model.decoder->config()))
    attach_saved(saved, model);
}

}  // namespace focus
