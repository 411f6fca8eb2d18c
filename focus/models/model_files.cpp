#include "focus/models/model_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/chat/chat_template.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"
#include "data/gguf/gguf.h"
#include "data/gguf/gguf_tokenizer.h"
#include "data/tensors/checkpoint_folder.h"
#include "data/tensors/safetensors.h"
#include "data/text/text.h"
#include "focus/models/adapter_chat.h"
#include "layers/gguf_settings.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

/// A form in which models and adapters are on disk.
struct ModelFormat {
  /// Whether a path is of this form; the first in the table that says so opens it.
  bool (*is)(const std::filesystem::path& path);
  /// Without `own_tokenizer` the model's tokenizer is not read: another one replaces it. Throws
  /// std::runtime_error or std::invalid_argument, one line.
  ModelFiles (*open)(const std::filesystem::path& path, bool own_tokenizer);
  /// The adapters of a path for a model of that shape, at least one. Throws as open() does.
  std::vector<SavedAdapter> (*open_adapters)(const std::filesystem::path& path,
                                             const ModelConfig& shape);
};

// Hugging Face's folder; of adapters PEFT's, and an exported Focus.

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
  std::vector<SavedAdapter> saved;
  if (has_focus(folder)) saved.push_back(saved_adapter(open_focus_folder(folder)));
  if (saved.empty() || is_there(folder / kPeftConfig))
    saved.push_back(saved_lora(folder, read_peft_adapter));
  return saved;
}

// A GGUF file, or the first of several.

/// Tokens by which llama.cpp ends a generation whatever the file says of them.
constexpr std::array<std::string_view, 18> kEnds = {
    "<|eot_id|>", "<|im_end|>",    "<|end|>",           "<|return|>", "<|call|>",
    "<|flush|>",  "<|calls|>",     "<end_of_turn>",     "</s>",       "<|eom_id|>",
    "<EOT>",      "_<EOT>",        "<|end_of_text|>",   "[EOT]",      "[EOS]",
    "<eos>",      "<|endoftext|>", "<end_of_utterance>"};

/// The generation_config.json: BOS, padding, and every id that ends a generation in llama.cpp, the
/// file's EOS first; ids from `vocab_size` on are no tokens. Empty if the file names none.
std::string generation_config_of(const GgufMetadata& metadata, Index vocab_size) {
  if (metadata.text("tokenizer.ggml.model").value_or("none") == "none") return "";
  const auto id = [&](const char* name) -> std::optional<std::int64_t> {
    const auto value = metadata.integer(std::string("tokenizer.ggml.") + name);
    return value && *value >= 0 && *value < vocab_size ? value : std::nullopt;
  };
  std::vector<std::int64_t> ends;
  const auto add = [&](std::optional<std::int64_t> end) {
    if (end && std::ranges::find(ends, *end) == ends.end()) ends.push_back(*end);
  };
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) add(id(name));
  std::int64_t number = 0;
  for (const std::string& token :
       metadata.texts("tokenizer.ggml.tokens").value_or(std::vector<std::string>())) {
    if (number < vocab_size && std::ranges::find(kEnds, token) != kEnds.end()) add(number);
    ++number;
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (const auto bos = id("bos_token_id")) json["bos_token_id"] = *bos;
  if (ends.size() == 1) json["eos_token_id"] = ends.front();
  if (ends.size() > 1) json["eos_token_id"] = ends;
  if (const auto padding = id("padding_token_id")) json["pad_token_id"] = *padding;
  // What newer files say of how to draw, which llama.cpp does by default.
  const std::string sampling = "general.sampling.";
  if (const auto most = metadata.integer(sampling + "top_k"); most && *most >= 0)
    json["top_k"] = *most;
  for (const auto& [theirs, ours] : {std::pair{"temp", "temperature"},
                                     {"top_p", "top_p"},
                                     {"min_p", "min_p"},
                                     {"penalty_repeat", "repetition_penalty"}})
    if (const auto value = metadata.number(sampling + theirs)) json[ours] = *value;
  if (json.contains("temperature")) json["do_sample"] = json["temperature"] > 0;
  return json.empty() ? "" : json.dump(2) + "\n";
}

ModelFiles open_gguf(const std::filesystem::path& path, bool own_tokenizer) {
  ModelFiles files;
  auto source = std::make_unique<GgufSource>(path);
  files.config = read_gguf_config(*source);
  for (const auto& part : source->files()) files.identity.push_back(identity_of(part));
  if (own_tokenizer) files.tokenizer = tokenizer_of(source->metadata());
  const std::string generation = generation_config_of(source->metadata(), files.config.vocab_size);
  if (!generation.empty()) files.side_files[kGenerationConfig] = generation;
  files.weights = std::move(source);
  return files;
}

// A checkpoint file: every other path.

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

constexpr std::array<ModelFormat, 3> kFormats = {
    {{[](const fs::path& path) { return fs::is_directory(path); }, open_folder,
      open_adapters_of_folder},
     {is_gguf, open_gguf,
      [](const fs::path& path, const ModelConfig&) {
        return std::vector<SavedAdapter>{saved_lora(path, read_gguf_adapter)};
      }},
     {[](const fs::path&) { return true; }, open_checkpoint, open_adapters_of_checkpoint}}};

/// The format of a path. Throws std::runtime_error where there is nothing: "PATH: no such file or
/// folder; EXPECTED".
const ModelFormat& format_of(const fs::path& path, std::string_view expected) {
  if (!is_there(path)) fail("{}: no such file or folder; {}", path.string(), expected);
  return *std::ranges::find_if(kFormats, [&](const ModelFormat& each) { return each.is(path); });
}

template <class T>
T* find_kind(const std::vector<std::unique_ptr<Adapter>>& adapters) {
  for (const auto& adapter : adapters)
    if (auto* found = dynamic_cast<T*>(adapter.get())) return found;
  return nullptr;
}

/// Whether weights take more than half of the memory: the system may have dropped what a layer
/// needs since it was read.
bool outgrow_memory(const TensorSource& source) {
  std::size_t bytes = 0;
  for (const TensorInfo& info : source.tensors()) bytes += bytes_of(info.dtype, info.size());
  return bytes > memory_limit() / 2;
}

bool has_block_matrix(const TensorSource& weights) {
  return std::ranges::any_of(weights.tensors(), [](const TensorInfo& info) {
    return info.shape.size() == 2 && in_blocks(info.dtype);
  });
}

/// Reads an adapter for the model that it was made for, and attaches it.
void attach_saved(const SavedAdapter& saved, LoadedModel& model) {
  if (!saved.base_fingerprint.empty())
    check_base(saved.where, saved.base_fingerprint, model.fingerprint(), model.where);
  auto adapter = saved.read(*model.decoder);
  if (saved.kind->is_attention()) model.detach_attention();  // one in the place of another
  model.attach(std::move(adapter));
}

TextEnds of_tokenizer(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return {};
  return {.prefix = {tokenizer->prefix().begin(), tokenizer->prefix().end()},
          .suffix = {tokenizer->suffix().begin(), tokenizer->suffix().end()}};
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const fs::path& path) {
  const bool gguf = is_gguf(path);
  if (!gguf && !is_checkpoint_file(path)) return load_tokenizer(path);
  auto tokenizer =
      gguf ? tokenizer_of(GgufSource(path).metadata()) : read_tokenizer(StoreReader(path));
  if (!tokenizer) fail("{}: holds no tokenizer", path.string());
  return tokenizer;
}

ModelFiles open_model(const std::filesystem::path& given, const std::string& tokenizer) {
  const fs::path path = result_of_run(given);
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
    files.tokenizer = open_tokenizer(tokenizer);
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

std::vector<std::unique_ptr<Adapter>> LoadedModel::detach_attention() {
  std::vector<std::unique_ptr<Adapter>> taken;
  for (std::unique_ptr<Adapter>& adapter : adapters)
    if (adapter_kind(adapter->kind()).is_attention()) {
      adapter->detach();
      taken.push_back(std::move(adapter));
    }
  std::erase(adapters, nullptr);
  return taken;
}

std::optional<std::int32_t> LoadedModel::document_end() const {
  const std::vector<Index>& ends = decoder->config().eos_token_ids;
  if (!ends.empty()) return static_cast<std::int32_t>(ends.front());
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

LoadedModel load_model(const std::filesystem::path& path, const std::string& tokenizer,
                       std::optional<Precision> precision, WeightUse use) {
  auto files = std::make_shared<ModelFiles>(open_model(path, tokenizer));
  LoadedModel model;
  model.where = files->where;
  model.tokenizer = std::move(files->tokenizer);
  model.decoder = std::make_unique<Decoder>(files->config);
  std::optional<Precision> frozen;
  if (use == WeightUse::frozen)
    frozen = precision                           ? *precision
             : has_block_matrix(*files->weights) ? Precision::q8
                                                 : Precision::float32;
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
  SideFiles side_files = model.side_files();
  if (model.adapter_chat)  // a merged model continues to use it
    side_files[kChatTemplate] =
        find_chat_template(model.chat_files(), "", model.chat_where()).source();
  write_model_head(store, decoder.config(), model.tokenizer.get(), side_files);
  store.attribute("/model", "fingerprint", model_fingerprint(decoder));
  for_each_published(
      decoder, [](const Variable& p) { return p.value(); },
      [&](const std::string& name, const Tensor& tensor) {
        store.tensor(store_path("/model", name), tensor);
      });
}

void write_merged_model(const fs::path& path, LoadedModel& model) {
  StoreWriter store(path, "model");
  write_model(store, model);
  if (FocusModel* const focus = model.focus())
    focus->write(store, model_fingerprint(*model.decoder));
  store.commit();
}

std::vector<SavedAdapter> open_adapters(const fs::path& given, const LoadedModel& model) {
  const fs::path path = result_of_run(given);
  const ModelFormat& format = format_of(
      path,
      "an adapter is focus.h5 or lora.h5 of focus train, a folder of focus export, a PEFT "
      "folder or a GGUF file");
  return format.open_adapters(path, model.decoder->config());
}

void load_adapter(const fs::path& given, LoadedModel& model) {
  if (const Mechanism* mechanism = model.mechanism())
    fail("{}: was trained with {}; an adapter needs a model with dense attention", model.where,
         mechanism->name());
  for (const SavedAdapter& saved : open_adapters(given, model)) attach_saved(saved, model);
  if (fs::is_directory(given)) take_tokenizer_files(given, model);
}

void load_adapters(const std::vector<std::string>& paths, LoadedModel& model) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::size_t before = model.adapters.size();
    load_adapter(paths[i], model);
    if (i > 0 && model.adapters.size() <= before)
      fail("{}: two attentions; a model has one of them, and LoRA adapters beside it",
           fmt::join(paths, ","));
  }
}

std::optional<std::int32_t> LoadedModel::document_start() const {
  if (decoder->config().bos_token_id)
    return static_cast<std::int32_t>(*decoder->config().bos_token_id);
  return tokenizer ? tokenizer->bos_id() : std::nullopt;
}

TextEnds LoadedModel::text_ends() const {
  TextEnds ends;
  if (bos == Bos::automatic) ends = of_tokenizer(tokenizer.get());
  if (bos == Bos::always)
    if (const auto start = document_start()) ends.prefix = {*start};
  return ends;
}

std::optional<std::int32_t> LoadedModel::window_start() const {
  if (bos != Bos::window) return std::nullopt;
  const TextEnds ends = of_tokenizer(tokenizer.get());
  const auto start = ends.prefix.empty() ? document_start() : ends.prefix.front();
  if (!start)
    fail(
        "{}: neither the model nor its tokenizer has a BOS for the start of each window; leave out "
        "window",
        where);
  return start;
}

void LoadedModel::require_ids(std::span<const std::int32_t> ids, const std::string& place) const {
  const Index rows = decoder->config().vocab_size;
  const auto wrong = std::ranges::find_if(ids, [&](std::int32_t id) { return id >= rows; });
  if (wrong == ids.end()) return;
  const bool known = tokenizer && *wrong < tokenizer->vocab_size();
  fail(
      "{}: token {} has the id {}{}, but {} has {} ids; leave it out of the text, or use the "
      "model's own tokenizer",
      place, wrong - ids.begin(), *wrong,
      known ? " (" + json_quoted(tokenizer->decode(std::span(&*wrong, 1))) + ")" : "", where, rows);
}

std::vector<std::int32_t> LoadedModel::end_ids() const {
  const GenerationConfig generation = files ? files->generation : GenerationConfig();
  std::vector<std::int32_t> ends = generation_ends(generation, decoder->config(), where);
  if (ends.empty() && !generation.eos_token_ids && tokenizer && tokenizer->eos_id())
    ends = {*tokenizer->eos_id()};
  return ends;
}

std::vector<std::int32_t> LoadedModel::prompt_ids(std::string_view text,
                                                  const std::string& place) const {
  std::vector<std::int32_t> ids = require_tokenizer().encode(text);
  TextEnds ends = text_ends();
  ends.suffix.clear();
  if (const auto start = window_start()) ends.prefix = {*start};
  ends.put_around(ids);
  require_ids(ids, place);
  return ids;
}

}  // namespace focus
