#include "focus/models/side_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "data/files/notice.h"
#include "data/gguf/gguf.h"
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

/// Keys that are read here, and keys that do not change which token comes next.
constexpr std::array<std::string_view, 47> kHarmless = {
    "eos_token_id", "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
    "suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "no_repeat_ngram_size",
    "stop_strings",
    // They describe the file, other ids, memory, and the form of what is returned.
    "_from_model_config", "transformers_version", "_name_or_path", "trust_remote_code",
    "bos_token_id", "pad_token_id", "decoder_start_token_id", "use_cache", "cache_implementation",
    "cache_config", "return_legacy_cache", "compile_config", "disable_compile", "low_memory",
    "prefill_chunk_size", "return_dict_in_generate", "output_scores", "output_logits",
    "output_attentions", "output_hidden_states", "chat_format", "generation_mode",
    // Guesses of a second model, which are verified.
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind",
    "is_assistant", "max_matching_ngram_size", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "prompt_lookup_num_tokens", "target_lookbehind",
    // They concern an encoder, which these models do not have.
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "forced_decoder_ids",
    "is_encoder_decoder"};

/// Values with which other keys do nothing: `always`; `drawing`, only where tokens are drawn;
/// `beams`, only where there are several beams.
struct Idle {
  nlohmann::json always = nlohmann::json::parse(R"({
    "num_beams": 1, "max_length": 20, "min_length": 0, "min_new_tokens": 0, "penalty_alpha": 0,
    "guidance_scale": 1, "token_healing": false, "renormalize_logits": false,
    "num_return_sequences": 1, "remove_invalid_values": false})");
  nlohmann::json drawing = nlohmann::json::parse(R"({
    "typical_p": 1, "epsilon_cutoff": 0, "eta_cutoff": 0, "top_h": 1})");
  nlohmann::json beams = nlohmann::json::parse(R"({
    "length_penalty": 1, "early_stopping": false, "num_beam_groups": 1, "diversity_penalty": 0})");
};

/// What a file says that is not applied, a key with its value each.
std::vector<std::string> not_applied_of(const nlohmann::json& json, bool do_sample) {
  static const Idle idle;
  const bool beams = json.value("num_beams", nlohmann::json(1)) != 1;
  std::vector<std::string> named;
  for (const auto& [key, value] : json.items()) {
    const bool empty = value.is_null() || (value.is_structured() && value.empty());
    if (empty || std::ranges::find(kHarmless, std::string_view(key)) != kHarmless.end()) continue;
    if ((!do_sample && idle.drawing.contains(key)) || (!beams && idle.beams.contains(key)))
      continue;
    bool idles = false;
    for (const nlohmann::json* keys : {&idle.always, &idle.drawing, &idle.beams})
      idles = idles || (keys->contains(key) && keys->at(key) == value);
    if (!idles) named.push_back(fmt::format("{} {}", shown(key), shown_json(value)));
  }
  return named;
}

std::vector<std::int32_t> ids_of(const JsonView& list) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < list.array_size(); ++i)
    ids.push_back(static_cast<std::int32_t>(list.item(i).integer(1 << 30)));
  return ids;
}

TokenRules rules_of(const JsonView& json) {
  TokenRules rules;
  const auto given = [&](const char* key) { return !json.get(key).is_null(); };
  if (given("suppress_tokens")) rules.suppress_tokens = ids_of(json.at("suppress_tokens"));
  if (given("begin_suppress_tokens"))
    rules.begin_suppress_tokens = ids_of(json.at("begin_suppress_tokens"));
  if (given("no_repeat_ngram_size"))
    rules.no_repeat_ngram_size = json.at("no_repeat_ngram_size").integer(1 << 30);
  if (!given("bad_words_ids")) return rules;
  const JsonView words = json.at("bad_words_ids");
  for (std::size_t i = 0; i < words.array_size(); ++i) {
    rules.bad_words_ids.push_back(ids_of(words.item(i)));
    if (rules.bad_words_ids.back().empty()) fail("{}: it holds no token", words.item(i).where());
  }
  return rules;
}

}  // namespace

bool is_checkpoint_file(const fs::path& path) {
  return fs::is_regular_file(path) && path.extension() == ".h5";
}

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
  if (tokenizer == "bytes" || is_gguf(tokenizer)) return;
  if (is_checkpoint_file(tokenizer)) {
    for (const auto& [name, bytes] : read_side_files(StoreReader(tokenizer)))
      if (belongs_to_tokenizer(name)) files[name] = bytes;
    return;
  }
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
    take(min_p, flags.min_p, "min_p", sampling.min_p, taken);
  }
  sampling.rules = rules;
  for (const auto& [name, count] : {std::pair{"suppress_tokens", rules.suppress_tokens.size()},
                                    {"begin_suppress_tokens", rules.begin_suppress_tokens.size()},
                                    {"bad_words_ids", rules.bad_words_ids.size()}})
    if (count > 0) taken.push_back(fmt::format("{} ({})", name, count));
  if (rules.no_repeat_ngram_size > 0)
    taken.push_back(fmt::format("no_repeat_ngram_size {}", rules.no_repeat_ngram_size));
  if (!stop_strings.empty())
    taken.push_back(fmt::format("stop_strings {}", shown_json(stop_strings)));
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
  config.min_p = number("min_p", 0, 1);
  config.top_k = fields.optional_integer("top_k");
  config.rules = rules_of(JsonView(json, place));
  if (const JsonView stops = JsonView(json, place).get("stop_strings"); stops.json().is_string())
    config.stop_strings = {stops.string()};
  else if (!stops.is_null())
    for (std::size_t i = 0; i < stops.array_size(); ++i)
      config.stop_strings.push_back(stops.item(i).string());
  config.not_applied = not_applied_of(json, config.do_sample);
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
