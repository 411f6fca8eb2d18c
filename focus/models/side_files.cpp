#include "focus/models/side_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "data/files/notice.h"
#include "layers/json_fields.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSideGroup = "/side";
/// chat_template.json is what processors wrote before there was a .jinja; the last three lie beside
/// many a tokenizer.json, for programs that read no other.
constexpr std::array<std::string_view, 8> kTokenizerSideFiles = {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "chat_template.json",    "tokenizer.model",         "vocab.json",        "merges.txt"};
constexpr const char* kOtherTemplates = "additional_chat_templates";

bool belongs_to_tokenizer(std::string_view name) {
  return std::ranges::find(kTokenizerSideFiles, name) != kTokenizerSideFiles.end();
}

void read_side_file(const fs::path& folder, std::string_view name, SideFiles& files) {
  constexpr std::uint64_t kMostBytes = 256 << 20;
  const fs::path path = folder / name;
  if (!is_there(path)) return;
  const std::uint64_t size = InputFile(path).size();
  if (size > kMostBytes)
    fail("{}: {} bytes are too many for this file; get it again", path.string(), size);
  files[std::string(name)] = read_file(path);
}

constexpr Index kTopK = 50;  // transformers' default where it samples

template <class T, class V>
void take(const std::optional<T>& value, bool said, const char* name, V& to,
          std::vector<std::string>& taken) {
  if (!value || said || to == static_cast<V>(*value)) return;
  to = static_cast<V>(*value);
  taken.push_back(fmt::format("{} {}", name, *value));
}

}  // namespace

bool is_side_file(const std::string& name) {
  return name == kGenerationConfig || belongs_to_tokenizer(name);
}

SideFiles read_side_files(const fs::path& folder) {
  SideFiles files;
  read_side_file(folder, kGenerationConfig, files);
  for (const std::string_view name : kTokenizerSideFiles) read_side_file(folder, name, files);
  if (is_there(folder / kOtherTemplates))
    notice("{}: {} is ignored: only one chat template is kept", folder.string(), kOtherTemplates);
  return files;
}

SideFiles read_side_files(const StoreReader& store) {
  SideFiles files;
  if (!store.has(kSideGroup)) return files;
  for (const std::string& name : store.list(kSideGroup)) {
    if (!is_side_file(name))
      fail("{}: /side holds \"{}\", which is not a file of a model", store.describe(), name);
    files[name] = store.text(fmt::format("{}/{}", kSideGroup, name));
  }
  return files;
}

void replace_tokenizer_side_files(SideFiles& files, const fs::path& tokenizer) {
  std::erase_if(files, [](const auto& file) { return belongs_to_tokenizer(file.first); });
  if (tokenizer == "bytes") return;
  const fs::path folder = fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path();
  for (const std::string_view name : kTokenizerSideFiles) read_side_file(folder, name, files);
}

void add_tokenizer_files(SideFiles& files, const Tokenizer& tokenizer) {
  for (const auto& [name, bytes] : tokenizer.files())
    if (is_side_file(name)) files[name] = bytes;
}

void write_side_files(StoreWriter& store, const SideFiles& files, const Tokenizer* tokenizer) {
  for (const auto& [name, bytes] : files)
    if (tokenizer == nullptr || !tokenizer->files().contains(name))
      store.text(fmt::format("{}/{}", kSideGroup, name), bytes);
}

std::string GenerationConfig::apply(const Said& flags, SamplingOptions& sampling) const {
  std::vector<std::string> taken;
  take(repetition_penalty, flags.repetition_penalty, "repetition_penalty",
       sampling.repetition_penalty, taken);
  if (do_sample)
    take(std::optional(temperature.value_or(1)), flags.temperature, "temperature",
         sampling.temperature, taken);
  if (sampling.temperature > 0) {
    const bool by_default = do_sample && !top_k;
    take(by_default ? std::optional(kTopK) : top_k, flags.top_k, "top_k", sampling.top_k, taken);
    take(top_p, flags.top_p, "top_p", sampling.top_p, taken);
  }
  return fmt::format("{}", fmt::join(taken, ", "));
}

GenerationConfig read_generation_config(const SideFiles& files, const std::string& where) {
  GenerationConfig config;
  const auto file = files.find(kGenerationConfig);
  if (file == files.end()) return config;
  const std::string place = fmt::format("{}: {}", where, kGenerationConfig);
  const nlohmann::json json = parse_strict_json(file->second, place);
  if (!json.is_object()) fail("{}: not a JSON object", place);
  const JsonFields fields(json, place);
  if (fields.mentions("eos_token_id")) config.eos_token_ids = fields.integers("eos_token_id");
  const auto number = [&](const char* key, double least, double most) {
    if (!fields.has(key)) return std::optional<double>();
    const double value = fields.number(key);
    if (!(value >= least && value <= most))
      fail("{}: {} must be from {} to {}, not {}", place, key, least, most, value);
    return std::optional(value);
  };
  config.from_model_config = fields.boolean("_from_model_config", false);
  config.do_sample = fields.boolean("do_sample", false);
  config.temperature = number("temperature", 0, 1e6);
  config.top_p = number("top_p", 1e-9, 1);
  config.repetition_penalty = number("repetition_penalty", 1e-6, 1e6);
  config.top_k = fields.optional_integer("top_k");
  return config;
}

std::vector<std::int32_t> generation_ends(const GenerationConfig& generation,
                                          const ModelConfig& config, const std::string& where) {
  const std::vector<Index>& of_config = config.eos_token_ids;
  std::vector<Index> ends = generation.eos_token_ids.value_or(of_config);
  const std::vector<Index> of_file = ends;
  const auto lacks = [&](Index id) { return std::ranges::find(ends, id) == ends.end(); };
  if (std::ranges::any_of(of_config, lacks)) {
    notice("{}: config.json has eos_token_id [{}], {} has [{}]; {}", where,
           fmt::join(of_config, ", "), kGenerationConfig, fmt::join(of_file, ", "),
           generation.from_model_config ? "all of them are used, since one was made from the other"
                                        : "the latter is used");
    for (const Index id : of_config)
      if (generation.from_model_config && lacks(id)) ends.push_back(id);
  }
  return {ends.begin(), ends.end()};
}

std::string exported_generation_config(const SideFiles& files, const ModelConfig& config) {
  nlohmann::ordered_json json = {{"_from_model_config", true}};
  if (const auto own = files.find(kGenerationConfig); own != files.end()) {
    json = nlohmann::ordered_json::parse(own->second);
    if (json.value("_from_model_config", nlohmann::ordered_json()) != true) return own->second;
  }
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  std::vector<Index> ends = config.eos_token_ids;
  const auto own = json.find("eos_token_id");
  if (own != json.end() && !own->is_null())
    for (const Index id :
         own->is_array() ? own->get<std::vector<Index>>() : std::vector<Index>{own->get<Index>()})
      if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  if (ends.size() == 1) json["eos_token_id"] = ends[0];
  if (ends.size() > 1) json["eos_token_id"] = ends;
  return json.size() > 1 ? json.dump(2) + "\n" : "";
}

}  // namespace focus
