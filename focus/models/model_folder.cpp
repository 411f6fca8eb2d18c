#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/tensors/safetensors.h"
#include "focus/models/model_export.h"

namespace focus {
namespace {

#include "focus/models/modeling_focus.py.inc"

namespace fs = std::filesystem;
using Shapes = std::vector<std::pair<std::string, Shape>>;

constexpr std::string_view kWeightsStem = "model";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kCodeFile = "modeling_focus.py";
// What transformers' GPT-2 tokenizer calls OpenAI's two files.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kRenamedFiles = {
    {{"encoder.json", "vocab.json"}, {"vocab.bpe", "merges.txt"}}};

/// Every name that an exported folder may hold.
bool is_exported(const std::string& name) {
  constexpr std::array<std::string_view, 9> kNames = {
      "config.json",    kIndexFile,        kCodeFile,    kFocusConfigFile, kFocusWeightsFile,
      "tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"};
  const bool shard = name.starts_with(kWeightsStem) && name.ends_with(".safetensors");
  return shard || is_side_file(name) || std::ranges::find(kNames, name) != kNames.end();
}

/// Which tensors go into which file: as many as fit, in the order of the model.
std::vector<Shapes> cut_into_shards(const Shapes& shapes, Dtype dtype, std::uint64_t limit) {
  std::vector<Shapes> shards(1);
  std::uint64_t bytes = 0;
  for (const auto& [name, shape] : shapes) {
    const std::uint64_t size = bytes_of(dtype, shape.size());
    if (!shards.back().empty() && bytes + size > limit) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().emplace_back(name, shape);
    bytes += size;
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  return count == 1 ? fmt::format("{}.safetensors", kWeightsStem)
                    : fmt::format("{}-{:05}-of-{:05}.safetensors", kWeightsStem, index + 1, count);
}

void write_index(const fs::path& folder, const std::vector<Shapes>& shards, Dtype dtype) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  Index numbers = 0;
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const auto& [name, shape] : shards[i]) {
      map[name] = shard_name(i, shards.size());
      numbers += shape.size();
    }
  const nlohmann::ordered_json index = {
      {"metadata", {{"total_parameters", numbers}, {"total_size", bytes_of(dtype, numbers)}}},
      {"weight_map", map}};
  write_file_durably(folder / kIndexFile, std::string_view(index.dump(2) + "\n"));
}

/// The weights' files; shard after shard, while the model streams through.
ReadModel write_weights(const fs::path& folder, const ModelFiles& files, Dtype dtype,
                        std::uint64_t shard_bytes) {
  const auto shards = cut_into_shards(published_shapes(files.config), dtype, shard_bytes);
  std::optional<SafetensorsWriter> writer;
  std::size_t shard = 0;
  ReadModel streamed =
      stream_model(files, dtype, [&](const std::string& name, const Tensor& tensor) {
        if (!writer)
          writer.emplace(folder / shard_name(shard, shards.size()), shards.at(shard), dtype,
                         std::map<std::string, std::string>{{"format", "pt"}});
        writer->add(name, tensor);
        if (!writer->complete()) return;
        writer->commit();
        writer.reset();
        ++shard;
      });
  if (shards.size() > 1) write_index(folder, shards, dtype);
  return streamed;
}

/// Beside the weights, what makes transformers read the folder as the sparse model.
void add_code(const fs::path& folder, nlohmann::ordered_json& json, const FocusConfig& focus) {
  // kCodeFile has a class of each family, named after the family's own.
  const std::string own = json.at("architectures").at(0).get<std::string>();
  const fs::path module = fs::path(kCodeFile).stem();
  json["auto_map"] = {{"AutoModelForCausalLM", fmt::format("{}.Focus{}", module.string(), own)}};
  json["focus_attention"] = focus.training == Training::summary ? "summary" : "soft";
  write_file_durably(folder / kCodeFile, kModelingFocus);
}

/// `code`: of the Focus whose attention transformers is to compute; null: none.
void write_config(const fs::path& folder, const ModelConfig& config, std::string_view dtype,
                  const FocusConfig* code) {
  auto json = nlohmann::ordered_json::parse(write_model_config(config));
  json["dtype"] = dtype;
  if (code != nullptr) add_code(folder, json, *code);
  // The name that older versions of transformers know; without it they would not stretch at all.
  // Where local layers have rotary embeddings of their own it is that of the global ones.
  const auto rope = json.value("rope_parameters", nlohmann::ordered_json::object());
  const auto stretched = rope.value("full_attention", rope);
  if (stretched.value("rope_type", "default") != "default") json["rope_scaling"] = stretched;
  write_file_durably(folder / "config.json", std::string_view(json.dump(2) + "\n"));
}

void put_side_files(const fs::path& folder, const ModelFiles& files) {
  for (const auto& [name, bytes] : files.side_files)
    write_file_durably(folder / name, std::string_view(bytes));
  const std::string generation = exported_generation_config(files.side_files, files.config);
  if (!generation.empty())
    write_file_durably(folder / kGenerationConfig, std::string_view(generation));
}

/// The files that the tokenizer was made from.
void write_tokenizer(const fs::path& folder, const Tokenizer& tokenizer) {
  for (const auto& [name, bytes] : tokenizer.files()) {
    std::string_view published = name;
    for (const auto& [ours, theirs] : kRenamedFiles)
      if (name == ours) published = theirs;
    write_file_durably(folder / published, std::string_view(bytes));
  }
}

}  // namespace

std::vector<std::string> weight_dtypes(std::span<const Dtype> blocks) {
  std::vector<std::string> words = {"float32", "bf16", "f16"};
  for (const Dtype dtype : blocks) words.emplace_back(name_of(dtype));
  return words;
}

WeightDtype weight_dtype(std::string_view option, std::span<const Dtype> blocks) {
  constexpr std::array<WeightDtype, 4> kWhole = {{{"float32", "float32", Dtype::f32},
                                                  {"bf16", "bfloat16", Dtype::bf16},
                                                  {"f16", "float16", Dtype::f16},
                                                  {"float16", "float16", Dtype::f16}}};
  const auto whole = std::ranges::find(kWhole, option, &WeightDtype::option);
  if (whole != kWhole.end()) return *whole;
  const Dtype dtype = format_named(option);
  check(std::ranges::find(blocks, dtype) != blocks.end(), "dtype {}: expected one of {}", option,
        fmt::join(weight_dtypes(blocks), ", "));
  return {option, option, dtype};
}

ReadModel write_model_folder(const fs::path& folder, const ModelFiles& files,
                             const std::optional<SavedFocus>& focus, const ExportOptions& options) {
  if (const SavedAdapter* own = files.attention(); own && own->kind->role != AdapterRole::focus)
    fail("{}: was trained with {}, which a Hugging Face folder cannot represent", files.where,
         own->name);
  if (options.with_code && !focus)
    fail("{}: has no Focus for the code to compute; attach one with --adapter", files.where);
  std::error_code not_there;
  if (fs::equivalent(folder, files.where, not_there))
    fail("{}: is the folder of the model itself; choose another folder", folder.string());
  const WeightDtype dtype = weight_dtype(options.dtype);
  DurableFolder target(folder, options.overwrite, is_exported);
  ReadModel model = write_weights(target.temporary(), files, dtype.dtype, options.shard_bytes);
  if (model.nonfinite.count > 0)
    fail(
        "{}: {} weights are NaN, infinite or outside the range of {}, the first in {}; --dtype "
        "bf16 has float32's range",
        files.where, model.nonfinite.count, dtype.published, model.nonfinite.first);
  write_config(target.temporary(), files.config, dtype.published,
               options.with_code ? &focus->config : nullptr);
  put_side_files(target.temporary(), files);
  if (files.tokenizer) write_tokenizer(target.temporary(), *files.tokenizer);
  if (focus) {
    // Its base is the model as it was; what lies beside it is named in the folder's copy.
    const std::string base = dtype.dtype == kRealDtype ? model.fingerprint : fingerprint_of(files);
    write_focus_folder(target.temporary(), *read_focus(*focus, base, files.where),
                       model.fingerprint);
  }
  target.commit();
  return model;
}

void write_adapter_folder(const fs::path& folder, const SavedFocus& focus, bool overwrite) {
  const auto model = read_focus(focus);
  DurableFolder target(folder, overwrite, is_exported);
  write_focus_folder(target.temporary(), *model, focus.base_fingerprint);
  target.commit();
}

void write_adapters_folder(const fs::path& folder, const LoadedModel& model,
                           const std::string& base, bool overwrite) {
  DurableFolder target(folder, overwrite, [](const std::string& name) {
    return name == kPeftConfig || name == kPeftWeights || name == kFocusConfigFile ||
           name == kFocusWeightsFile;
  });
  if (model.lora() == nullptr && model.focus() == nullptr)
    fail("{}: {} has no LoRA and no groups to write", folder.string(), model.where);
  if (LoraModel* const lora = model.lora()) lora->write_beside(target.temporary(), base);
  if (FocusModel* const focus = model.focus())
    write_focus_folder(target.temporary(), *focus, model.fingerprint());
  target.commit();
}

}  // namespace focus
