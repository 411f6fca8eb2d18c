#include "focus/lora/peft_adapter.h"

#include <set>

#include "autograd/check.h"
#include "data/files/durable_file.h"
#include "data/files/json_reader.h"
#include "data/files/safetensors.h"
#include "data/text/text.h"
#include "layers/json_fields.h"

namespace focus {
namespace {

/// Keys that do not change what an adapter computes, whatever they say.
const std::set<std::string>& keys_without_effect() {
  static const std::set<std::string> keys = {
      "task_type",      "peft_version",  "base_model_name_or_path", "revision",
      "inference_mode", "auto_mapping",  "megatron_core",           "qalora_group_size",
      "fan_in_fan_out", "runtime_config"};
  return keys;
}

bool is_empty(const nlohmann::json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

}  // namespace

LoraConfig parse_peft_config(const std::string& text, const std::string& where) {
  const nlohmann::json object = parse_strict_json(text, where);
  check(object.is_object(), "{}: wanted an object", where);
  const JsonFields json(object, where);
  const std::string type = json.text("peft_type");
  check(type == "LORA", "{}: peft_type {} is not supported, only LORA", where, type);
  const std::string bias = json.text("bias", "none");
  check(bias == "none", "{}: bias {} is not supported, only none", where, bias);
  check(json.has("target_modules"), "{}: target_modules is missing", where);
  LoraConfig config;
  if (object.at("target_modules").is_string()) {
    const std::string pattern = json.text("target_modules");
    check(pattern == "all-linear",
          "{}: target_modules '{}' is a pattern, which is not supported: list the names", where,
          pattern);
    config.target_modules = {pattern};
  } else {
    config.target_modules = json.texts("target_modules");
  }
  config.r = static_cast<int>(std::min<Index>(json.integer("r", 8), 1 << 20));
  config.alpha = json.number("lora_alpha", 8);
  config.dropout = json.number("lora_dropout", 0);
  config.rslora = json.boolean("use_rslora", false);
  if (json.has("init_lora_weights")) {
    // The other ways to start change the base's weights, which are then no longer the base's.
    const nlohmann::json& start = object.at("init_lora_weights");
    check(start.is_boolean() || start == "gaussian", "{}: init_lora_weights {} is not supported",
          where, start.dump());
  }
  static const std::set<std::string> read = {
      "peft_type",  "bias",         "target_modules", "r",
      "lora_alpha", "lora_dropout", "use_rslora",     "init_lora_weights"};
  for (const auto& [key, value] : object.items())
    check(read.contains(key) || keys_without_effect().contains(key) || is_empty(value),
          "{}: {} {} is not supported", where, key, value.dump());
  try {
    config.validate();
  } catch (const std::invalid_argument& error) {
    fail("{}: {}", where, error.what());
  }
  return config;
}

std::string write_peft_config(const LoraModel& lora, const std::string& base) {
  const LoraConfig& config = lora.config();
  nlohmann::ordered_json json = {{"peft_type", "LORA"},
                                 {"task_type", "CAUSAL_LM"},
                                 {"base_model_name_or_path", base},
                                 {"target_modules", config.target_modules},
                                 {"r", config.r},
                                 {"lora_alpha", config.alpha},
                                 {"lora_dropout", config.dropout},
                                 {"use_rslora", config.rslora},
                                 {"bias", "none"},
                                 {"fan_in_fan_out", lora.fan_in_fan_out()},
                                 {"inference_mode", true}};
  if (std::ranges::count(config.target_modules, "all-linear") > 0)
    json["target_modules"] = "all-linear";
  return json.dump(2) + "\n";
}

std::unique_ptr<LoraModel> read_peft_adapter(const std::filesystem::path& folder,
                                             Decoder& decoder) {
  const auto config_path = folder / kPeftConfig;
  if (!std::filesystem::exists(config_path) || !std::filesystem::exists(folder / kPeftWeights))
    fail("{}: no PEFT adapter; such a folder holds {} and {}", folder.string(), kPeftConfig,
         kPeftWeights);
  Rng rng(0);
  auto lora = std::make_unique<LoraModel>(
      parse_peft_config(read_text_file(config_path), config_path.string()), decoder, rng);
  lora->load(SafetensorsFile(folder / kPeftWeights));
  return lora;
}

void write_peft_adapter(const std::filesystem::path& folder, const LoraModel& lora,
                        const std::string& base) {
  std::filesystem::remove(folder / kPeftConfig);
  write_safetensors(folder / kPeftWeights, lora.tensors(), {{"format", "pt"}});
  write_file_durably(folder / kPeftConfig, std::string_view(write_peft_config(lora, base)));
}

}  // namespace focus
