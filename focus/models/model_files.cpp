#include "focus/models/model_files.h"

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/files/file_identity.h"
#include "data/files/input_file.h"
#include "data/files/notice.h"
#include "data/gguf/gguf.h"
#include "data/tensors/safetensors.h"
#include "data/text/text.h"
#include "focus/adapters/lora/gguf_adapter.h"
#include "focus/adapters/lora/peft_adapter.h"
#include "focus/models/gguf_model.h"

namespace focus {
namespace {

void add_to_fingerprint(Checksum& checksum, const std::string& name, const Tensor& tensor) {
  checksum.update(name);
  checksum.update(std::as_bytes(tensor.span()));
}

/// The fingerprint's beginning, before the parameters: what is computed of these, and no more.
/// Where a text begins and ends, how long it may be and how weights were drawn are no part of a
/// base.
Checksum start_fingerprint(const ModelConfig& config) {
  ModelConfig forward = config;
  forward.bos_token_id.reset();
  forward.eos_token_id.reset();
  forward.other_eos_token_ids.clear();
  forward.initializer_range = ModelConfig{}.initializer_range;
  forward.max_position_embeddings = 0;
  Checksum checksum;
  checksum.update(write_model_config(forward));
  return checksum;
}

/// A folder of the Hugging Face cache holds the model below snapshots/, under its commit's name.
void refuse_cache_folder(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder / "snapshots")) return;
  std::string found = (folder / "snapshots" / "COMMIT").string();
  for (const auto& entry : std::filesystem::directory_iterator(folder / "snapshots"))
    found = entry.path().string();
  fail("{}: is a folder of the Hugging Face cache; the model is in {}", folder.string(), found);
}

/// A file of a folder that has to be named as a whole.
void refuse_file_of_folder(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  if (std::filesystem::is_directory(path)) refuse_cache_folder(path);
  if (std::filesystem::is_regular_file(path) &&
      (ending == ".safetensors" || ending == ".json" || ending == ".bin" || ending == ".pt"))
    fail("{}: is a file in a model folder; give the folder, {}", path.string(),
         std::filesystem::absolute(path).parent_path().string());
}

ModelFiles open_folder(const std::filesystem::path& folder) {
  ModelFiles files;
  const auto config_path = folder / "config.json";
  if (!is_there(config_path)) refuse_file_of_folder(folder);
  if (!is_there(config_path))
    fail("{}: has no config.json; a Hugging Face folder holds config.json and model.safetensors",
         folder.string());
  files.config = parse_model_config(read_text_file(config_path), config_path.string());
  files.weights = open_safetensors_folder(folder);
  files.identity.push_back(identity_of(config_path));
  for (const auto& path : files.weights->files()) files.identity.push_back(identity_of(path));
  files.tokenizer = find_tokenizer(folder);
  files.side_files = read_side_files(folder);
  if (has_focus(folder)) files.adapters.push_back(saved_adapter(open_focus_folder(folder)));
  return files;
}

ModelFiles open_store(const std::filesystem::path& path) {
  ModelFiles files;
  const StoreReader store(path);
  if (!store.has("/model"))
    fail(
        "{}: a checkpoint file of kind \"{}\" holds no model; give the base model here and this "
        "file as the adapter",
        path.string(), store.kind());
  files.config = parse_model_config(store.text("/config.json"), path.string() + ": config.json");
  files.weights = store.source("/model");
  if (store.has_attribute("/model", "fingerprint"))
    files.stored_fingerprint = store.string_attribute("/model", "fingerprint");
  else
    files.identity.push_back(identity_of(path));
  if (store.has("/tokenizer")) {
    TokenizerFiles tokenizer;
    for (const std::string& name : store.list("/tokenizer"))
      tokenizer[name] = store.text("/tokenizer/" + name);
    files.tokenizer =
        make_tokenizer(store.string_attribute("/tokenizer", "kind"), tokenizer, path.string());
  }
  files.side_files = read_side_files(store);
  files.adapters = open_adapters(store, files.config);
  return files;
}

}  // namespace

ModelFiles open_model(const std::filesystem::path& path, const std::string& tokenizer) {
  if (!is_there(path))
    fail(
        "{}: no such file or folder; a model is a checkpoint file (.h5), a Hugging Face folder or "
        "a GGUF file",
        path.string());
  const bool gguf = is_gguf(path);
  if (!gguf) refuse_file_of_folder(path);
  ModelFiles files = std::filesystem::is_directory(path) ? open_folder(path)
                     : gguf                              ? open_gguf(path, tokenizer.empty())
                                                         : open_store(path);
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

StreamedModel stream_model(const ModelFiles& files, Dtype dtype, const PublishedFunction& f) {
  Decoder decoder(files.config);
  StreamedModel streamed;
  streamed.parameters = count_parameters(decoder);
  Checksum checksum = start_fingerprint(files.config);
  stream_weights(
      decoder, *files.weights,
      [&](const std::string& name, Tensor& tensor) {
        if (dtype != kRealDtype) round_to(dtype, tensor.span());
        add_to_fingerprint(checksum, name, tensor);
      },
      [&](const std::string& name, const Tensor& tensor) {
        streamed.nonfinite.look_at(name, tensor.span());
        f(name, tensor);
      });
  streamed.fingerprint = checksum.hex();
  return streamed;
}

ModelReading::ModelReading(const ModelConfig& config) : checksum_(start_fingerprint(config)) {}

void ModelReading::begin(const StoredParameter& p, const TensorSource& source) {
  if (verified_ != p.info->name) source.verify(p.info->name);
  verified_ = p.info->name;
  published_ = p.published;
  checksum_.update(p.name);
  model_.parameters += p.shape.size();
  model_.types.insert(name_of(p.info->dtype));
}

void ModelReading::take(std::span<const Real> numbers) {
  checksum_.update(std::as_bytes(numbers));
  model_.nonfinite.look_at(published_, numbers);
}

ReadModel ModelReading::finish() {
  model_.fingerprint = checksum_.hex();
  return std::move(model_);
}

ReadModel read_model(const ModelFiles& files) {
  ModelReading reading(files.config);
  for_each_stored(files.config, *files.weights, [&](const StoredParameter& p) {
    reading.begin(p, *files.weights);
    p.for_each_block([&](std::span<const Real> numbers) { reading.take(numbers); });
  });
  return reading.finish();
}

namespace {

/// Where what is known of a folder's fingerprint is kept. The twin with double numbers has others.
std::filesystem::path note_folder() {
  return kRealDtype == Dtype::f32 ? cache_folder() : std::filesystem::path();
}

/// How a config.json is read may change from one version of this program to the next.
std::string note_head(const ModelFiles& files) {
  return start_fingerprint(files.config).hex() + ": ";
}

/// What a checkpoint file says of itself, or what was noted of these files: without reading the
/// weights.
std::optional<std::string> known_fingerprint(const ModelFiles& files) {
  if (!files.stored_fingerprint.empty()) return files.stored_fingerprint;
  const std::string head = note_head(files);
  const auto note = recall_note(note_folder(), files.identity);
  if (!note || !note->starts_with(head)) return std::nullopt;
  return note->substr(head.size());
}

}  // namespace

std::string fingerprint_of(const ModelFiles& files) {
  if (const auto known = known_fingerprint(files)) return *known;
  const std::string fingerprint = read_model(files).fingerprint;
  // A file that was replaced meanwhile has another one.
  std::vector<FileIdentity> now;
  for (const FileIdentity& file : files.identity) now.push_back(identity_of(file.path));
  if (now == files.identity)
    keep_note(note_folder(), files.identity, note_head(files) + fingerprint);
  return fingerprint;
}

void verify_model(const ModelFiles& files) {
  const std::optional<std::string> known = known_fingerprint(files);
  if (!known) {  // computing it reads all of the model, and there is nothing to compare it with
    fingerprint_of(files);
    return;
  }
  const ReadModel found = read_model(files);
  if (*known != found.fingerprint)
    fail(
        "{}: the fingerprint of its weights is {}, not {} as before: they were changed; use "
        "another copy",
        files.where, found.fingerprint, *known);
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

/// Of weights that take more than half of the memory: the system may have dropped what a layer
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

/// The adapters of a store, a folder or a GGUF file.
std::vector<SavedAdapter> open_adapter_files(const std::filesystem::path& path,
                                             const ModelConfig& shape) {
  const auto known_by_shape = [&](auto read) {
    return std::vector<SavedAdapter>{
        {.kind = &adapter_kind("lora"),
         .where = path.string(),
         .name = "LoRA",
         .base_fingerprint = {},
         .read = [path, read](Decoder& decoder) -> std::unique_ptr<Adapter> {
           return read(path, decoder);
         }}};
  };
  if (is_gguf(path)) return known_by_shape(read_gguf_adapter);
  if (std::filesystem::is_directory(path))
    return has_focus(path) ? std::vector<SavedAdapter>{saved_adapter(open_focus_folder(path))}
                           : known_by_shape(read_peft_adapter);
  const StoreReader store(path);
  std::vector<SavedAdapter> saved = open_adapters(store, shape);
  if (saved.empty()) fail("{}: holds no adapter (kind \"{}\")", store.describe(), store.kind());
  return saved;
}

}  // namespace

LoadedModel load_model(const std::filesystem::path& path, const std::string& tokenizer,
                       Precision precision, WeightUse use) {
  auto files = std::make_shared<ModelFiles>(open_model(path, tokenizer));
  LoadedModel model;
  model.where = files->where;
  model.tokenizer = std::move(files->tokenizer);
  model.decoder = std::make_unique<Decoder>(files->config);
  std::optional<MatrixForm> form;
  if (use == WeightUse::frozen) form = form_of(precision);
  load_weights(*model.decoder, *files->weights, form);
  if (form && outgrow_memory(*files->weights)) model.decoder->read_ahead();
  model.files = files;
  for (const SavedAdapter& saved : files->adapters) attach_saved(saved, model);
  return model;
}

const std::string& LoadedModel::fingerprint() const {
  if (fingerprint_.empty())
    fingerprint_ = files != nullptr ? fingerprint_of(*files) : model_fingerprint(*decoder);
  return fingerprint_;
}

std::string model_fingerprint(Decoder& decoder) {
  Checksum checksum = start_fingerprint(decoder.config());
  for_each_parameter(decoder, [&](const std::string& name, Variable& p) {
    add_to_fingerprint(checksum, name, p.value());
  });
  return checksum.hex();
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
  if (!std::filesystem::exists(path))
    fail(
        "{}: no such file or folder; an adapter is focus.h5 or lora.h5 of focus train, a folder of "
        "focus export, a PEFT folder or a GGUF file",
        path.string());
  if (const Mechanism* mechanism = model.mechanism())
    fail("{}: was trained with {}; an adapter needs a model with dense attention", model.where,
         mechanism->name());
  if (!is_gguf(path)) refuse_file_of_folder(path);
  for (const SavedAdapter& saved : open_adapter_files(path, model.decoder->config()))
    attach_saved(saved, model);
}

}  // namespace focus
