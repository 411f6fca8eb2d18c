#include <cmath>
#include <set>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/files/json_reader.h"
#include "data/tensors/safetensors.h"
#include "data/text/text.h"
#include "focus/adapters/lora/lora.h"
#include "layers/json_fields.h"

namespace focus {

double LoraConfig::scaling() const {
  return alpha / (rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r));
}

void LoraConfig::validate() const {
  check(!target_modules.empty(), "lora.target_modules is empty: name linears, or all-linear");
  check(r >= 1 && r <= 4096, "lora.r is {}, expected 1..4096", r);
  check(std::isfinite(alpha) && alpha > 0, "lora.alpha is {}, expected a number > 0", alpha);
  check(dropout >= 0 && dropout < 1, "lora.dropout is {}, expected at least 0 and below 1",
        dropout);
}

LoraConfig parse_peft_config(const std::string& text, const std::string& where) {
  const nlohmann::json object = parse_strict_json(text, where);
  check(object.is_object(), "{}: expected an object", where);
  const JsonFields json(object, where);
  const std::string type = json.text("peft_type");
  check(type == "LORA", "{}: peft_type {} is not supported, only LORA", where, shown(type));
  const std::string bias = json.text("bias", "none");
  check(bias == "none", "{}: bias {} is not supported, only none", where, shown(bias));
  check(json.has("target_modules"), "{}: target_modules is missing", where);
  for (const char* key : {"r", "lora_alpha", "lora_dropout"})
    check(!json.mentions(key) || json.has(key), "{}: {} is null, expected a number", where, key);
  LoraConfig config;
  if (object.at("target_modules").is_string()) {
    const std::string pattern = json.text("target_modules");
    check(pattern == "all-linear",
          "{}: target_modules '{}' is a pattern, which is not supported: list the names", where,
          shown(pattern));
    config.target_modules = {pattern};
  } else {
    config.target_modules = json.texts("target_modules");
  }
  config.r = static_cast<int>(std::clamp<Index>(json.integer("r", 8), -1, 1 << 20));
  config.alpha = json.number("lora_alpha", 8);
  config.dropout = json.number("lora_dropout", 0);
  config.rslora = json.boolean("use_rslora", false);
  if (json.has("init_lora_weights")) {
    // The other ways to start change the base's weights, which are then no longer the base's.
    const nlohmann::json& start = object.at("init_lora_weights");
    check(start.is_boolean() || start == "gaussian", "{}: init_lora_weights {} is not supported",
          where, shown_json(start));
  }
  // Those that are read, and those that do not change what an adapter computes, whatever they say.
  static const std::set<std::string> known = {
      "peft_type",      "bias",          "target_modules", "r",
      "lora_alpha",     "lora_dropout",  "use_rslora",     "init_lora_weights",
      "task_type",      "peft_version",  "revision",       "base_model_name_or_path",
      "inference_mode", "auto_mapping",  "megatron_core",  "qalora_group_size",
      "fan_in_fan_out", "runtime_config"};
  for (const auto& [key, value] : object.items()) {
    const bool empty =
        value.is_null() || value == false || (value.is_structured() && value.empty());
    check(empty || known.contains(key), "{}: {} {} is not supported", where, shown(key),
          shown_json(value));
  }
  try {
    config.validate();
  } catch (const std::invalid_argument& error) {
    fail("{}: {}", where, error.what());
  }
  return config;
}

std::unique_ptr<LoraModel> read_peft_adapter(const std::filesystem::path& folder,
                                             Decoder& decoder) {
  const auto config_path = folder / kPeftConfig;
  if (!std::filesystem::exists(config_path) || !std::filesystem::exists(folder / kPeftWeights))
    fail("{}: not a PEFT adapter; such a folder holds {} and {}", folder.string(), kPeftConfig,
         kPeftWeights);
  Rng rng(0);
  const LoraConfig config = parse_peft_config(read_text_file(config_path), config_path.string());
  std::unique_ptr<LoraModel> lora;
  try {
    lora = std::make_unique<LoraModel>(config, decoder, rng);
  } catch (const std::invalid_argument& error) {  // of the settings, by the names of a config
    fail("{}: {}", config_path.string(), error.what());
  }
  lora->load(SafetensorsFile(folder / kPeftWeights));
  return lora;
}

void LoraModel::write_beside(const std::filesystem::path& folder, const std::string& base) const {
  // PEFT opens the name with transformers, which reads no checkpoint file and no GGUF file.
  nlohmann::ordered_json base_of_peft;
  if (std::filesystem::exists(std::filesystem::path(base) / "config.json")) base_of_peft = base;
  nlohmann::ordered_json json = {{"peft_type", "LORA"},
                                 {"task_type", "CAUSAL_LM"},
                                 {"base_model_name_or_path", base_of_peft},
                                 {"target_modules", config_.target_modules},
                                 {"r", config_.r},
                                 {"lora_alpha", config_.alpha},
                                 {"lora_dropout", config_.dropout},
                                 {"use_rslora", config_.rslora},
                                 {"bias", "none"},
                                 {"fan_in_fan_out", fan_in_fan_out()},
                                 {"inference_mode", true}};
  if (std::ranges::count(config_.target_modules, "all-linear") > 0)
    json["target_modules"] = "all-linear";
  std::filesystem::remove(folder / kPeftConfig);
  write_safetensors(folder / kPeftWeights, tensors(), {{"format", "pt"}});
  write_file_durably(folder / kPeftConfig, std::string_view(json_text(json, 2) + "\n"));
}

}  // namespace focus
