#include "focus/models/generation_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "autograd/base/check.h"
#include "data/files/notice.h"
#include "layers/json_fields.h"

namespace focus {
namespace {

constexpr Index kTopK = 50;  // transformers' default where it samples

template <class T, class V>
void take(const std::optional<T>& value, bool said, const char* name, V& to,
          std::vector<std::string>& taken) {
  if (!value || said || to == static_cast<V>(*value)) return;
  to = static_cast<V>(*value);
  taken.push_back(fmt::format("{} {}", name, *value));
}

}  // namespace

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
  std::vector<Index> of_config = config.other_eos_token_ids;
  if (config.eos_token_id) of_config.insert(of_config.begin(), *config.eos_token_id);
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

}  // namespace focus
