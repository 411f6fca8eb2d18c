#include "apps/command.h"
#include "autograd/check.h"
#include "data/files/durable_file.h"
#include "data/files/durable_folder.h"
#include "data/files/safetensors_writer.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using Shapes = std::vector<std::pair<std::string, Shape>>;

constexpr std::uint64_t kShardBytes = 5'000'000'000;  // transformers' "5GB"
constexpr std::string_view kWeightsStem = "model";
constexpr const char* kIndexFile = "model.safetensors.index.json";
// What transformers' GPT-2 tokenizer calls OpenAI's two files.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kRenamedFiles = {
    {{"encoder.json", "vocab.json"}, {"vocab.bpe", "merges.txt"}}};

/// --dtype's words, as config.json and the store spell them.
struct NamedDtype {
  std::string_view option, published;
  Dtype dtype;
};
constexpr std::array<NamedDtype, 3> kDtypes = {{{"float32", "float32", Dtype::f32},
                                                {"bf16", "bfloat16", Dtype::bf16},
                                                {"f16", "float16", Dtype::f16}}};

/// Every name that an exported folder may hold.
bool is_exported(const std::string& name) {
  constexpr std::array<std::string_view, 11> kNames = {"config.json",
                                                       "generation_config.json",
                                                       kIndexFile,
                                                       kFocusConfigFile,
                                                       kFocusWeightsFile,
                                                       "tokenizer.json",
                                                       "tokenizer.model",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "vocab.json",
                                                       "merges.txt"};
  const bool shard = name.starts_with(kWeightsStem) && name.ends_with(".safetensors");
  return shard || std::ranges::find(kNames, name) != kNames.end();
}

/// Which tensors go into which file: as many as fit, in the order of the model.
std::vector<Shapes> cut_into_shards(const Shapes& shapes, Dtype dtype, std::uint64_t limit) {
  std::vector<Shapes> shards(1);
  std::uint64_t bytes = 0;
  for (const auto& [name, shape] : shapes) {
    const std::uint64_t size = static_cast<std::uint64_t>(shape.size()) * dtype_bytes(dtype);
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
      {"metadata",
       {{"total_parameters", numbers},
        {"total_size", static_cast<std::uint64_t>(numbers) * dtype_bytes(dtype)}}},
      {"weight_map", map}};
  write_file_durably(folder / kIndexFile, std::string_view(index.dump(2) + "\n"));
}

/// The weights' files; shard after shard, while the model streams through.
StreamedModel write_weights(const fs::path& folder, const ModelFiles& files, Dtype dtype,
                            std::uint64_t shard_bytes) {
  Decoder decoder(files.config);
  const auto shards = cut_into_shards(published_shapes(decoder), dtype, shard_bytes);
  std::optional<SafetensorsWriter> writer;
  std::size_t shard = 0;
  const StreamedModel streamed =
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

void write_config(const fs::path& folder, const ModelConfig& config, std::string_view dtype) {
  auto json = nlohmann::ordered_json::parse(write_model_config(config));
  json["dtype"] = dtype;
  // The name that older versions of transformers know; without it they would not stretch at all.
  if (json.contains("rope_parameters") &&
      json["rope_parameters"].value("rope_type", "default") != "default")
    json["rope_scaling"] = json["rope_parameters"];
  write_file_durably(folder / "config.json", std::string_view(json.dump(2) + "\n"));
  nlohmann::ordered_json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (json.contains(key)) generation[key] = json[key];
  if (generation.size() > 1)
    write_file_durably(folder / "generation_config.json",
                       std::string_view(generation.dump(2) + "\n"));
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

struct Options {
  std::string source, out, adapter, tokenizer, dtype = "float32", json;
  std::uint64_t shard_bytes = kShardBytes;
  bool overwrite = false;
};

int export_adapter(const Options& o) {
  const SavedFocus saved = open_focus(o.source);
  const auto focus = read_focus(saved);
  DurableFolder folder(o.out, o.overwrite, is_exported);
  write_focus_folder(folder.temporary(), *focus, saved.base_fingerprint);
  folder.commit();
  fmt::print("{}: Focus for {} layers, {} groups, base {}\n", o.out, saved.num_layers,
             saved.config.num_groups, saved.base_fingerprint);
  write_json(
      o.json,
      {{"folder", o.out}, {"kind", "adapter"}, {"base_fingerprint", saved.base_fingerprint}});
  return 0;
}

int export_model(const Options& o) {
  const ModelFiles files = open_model(o.source, o.tokenizer);
  if (files.mechanism)
    fail("{}: was trained with {}, which a Hugging Face folder cannot say", o.source,
         files.mechanism->name());
  std::optional<SavedFocus> saved = files.focus;
  if (!o.adapter.empty()) saved = open_focus(o.adapter);
  const NamedDtype& dtype =
      *std::ranges::find(kDtypes, std::string_view(o.dtype), &NamedDtype::option);
  DurableFolder folder(o.out, o.overwrite, is_exported);
  const StreamedModel model = write_weights(folder.temporary(), files, dtype.dtype, o.shard_bytes);
  if (model.nonfinite > 0)
    fail(
        "{}: {} weights are NaN, infinite or beyond what {} holds, the first in {}; --dtype bf16 "
        "has float32's range",
        o.source, model.nonfinite, dtype.published, model.first_nonfinite);
  write_config(folder.temporary(), files.config, dtype.published);
  if (files.tokenizer) write_tokenizer(folder.temporary(), *files.tokenizer);
  if (saved) {
    // Its base is the model as it was; what lies beside it is named in the folder's copy.
    const std::string base = dtype.dtype == kRealDtype ? model.fingerprint : fingerprint_of(files);
    write_focus_folder(folder.temporary(), *read_focus(*saved, base, o.source), model.fingerprint);
  }
  folder.commit();

  fmt::print("{}: {}, {} layers, {} parameters in {}, fingerprint {}\n", o.out,
             files.config.model_type, files.config.num_hidden_layers, model.parameters,
             dtype.published, model.fingerprint);
  if (saved) fmt::print("Focus: {} groups, for these weights\n", saved->config.num_groups);
  if (files.tokenizer && files.tokenizer->files().empty())
    fmt::print("notice: a tokenizer of kind \"{}\" has no files that transformers reads\n",
               files.tokenizer->kind());
  else if (!files.tokenizer)
    fmt::print("notice: no tokenizer in {}, so none here\n", o.source);
  write_json(o.json, {{"folder", o.out},
                      {"kind", "model"},
                      {"model_type", files.config.model_type},
                      {"parameters", model.parameters},
                      {"dtype", dtype.published},
                      {"focus", saved.has_value()},
                      {"fingerprint", model.fingerprint}});
  return 0;
}

/// True where the source is a Focus alone: a store without a model, a folder without config.json.
bool is_adapter(const std::string& source) {
  if (!fs::exists(source)) return false;
  if (fs::is_directory(source))
    return has_focus(source) && !fs::exists(fs::path(source) / "config.json");
  const StoreReader store(source);
  return store.has("/focus") && !store.has("/model");
}

}  // namespace

int run_export(Arguments arguments) {
  Options o;
  CLI::App app(
      "Writes a Hugging Face folder that transformers loads (config.json, model.safetensors or "
      "shards with their index, the tokenizer's files); of an adapter its exchange form: "
      "focus_config.json and focus_model.safetensors. With --adapter both go into one folder.",
      "focus export");
  app.add_option("source", o.source, "a model or an adapter: a store or a folder")->required();
  app.add_option("--out", o.out, "the folder to write")->required();
  app.add_option("--adapter", o.adapter, "a Focus for this model, put beside it");
  app.add_option("--dtype", o.dtype, "of the model's weights: float32, bf16 or f16")
      ->check(CLI::IsMember({"float32", "bf16", "f16"}))
      ->capture_default_str();
  app.add_option("--max-shard-size", o.shard_bytes,
                 "bytes of one weights file, as 5GB or 500MB (default: 5GB)")
      ->transform(CLI::AsSizeValue(true));
  app.add_option("--tokenizer", o.tokenizer,
                 "bytes, or a tokenizer's file, instead of the model's");
  app.add_option("--json", o.json, "write the figures to this file too");
  app.add_flag("--overwrite", o.overwrite,
               "replace a folder that holds nothing but files of an exported one");
  parse_arguments(app, arguments);

  if (!is_adapter(o.source)) return export_model(o);
  if (!o.adapter.empty())
    fail("{}: is an adapter itself; name its base model here, and this file as --adapter",
         o.source);
  return export_adapter(o);
}

}  // namespace focus
