#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "focus/adapters/lora/peft_adapter.h"
#include "layers/json_fields.h"

// Settings alone: who reads them needs no model.
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
  check(object.is_object(), "{}: expected an object", where);
  const JsonFields json(object, where);
  const std::string type = json.text("peft_type");
  check(type == "LORA", "{}: peft_type {} is not supported, only LORA", where, shown(type));
  const std::string bias = json.text("bias", "none");
  check(bias == "none", "{}: bias {} is not supported, only none", where, shown(bias));
  check(json.has("target_modules"), "{}: target_modules is missing", where);
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
  static const std::set<std::string> read = {
      "peft_type",  "bias",         "target_modules", "r",
      "lora_alpha", "lora_dropout", "use_rslora",     "init_lora_weights"};
  for (const auto& [key, value] : object.items())
    check(read.contains(key) || keys_without_effect().contains(key) || is_empty(value),
          "{}: {} {} is not supported", where, shown(key), shown_json(value));
  try {
    config.validate();
  } catch (const std::invalid_argument& error) {
    fail("{}: {}", where, error.what());
  }
  return config;
}

}  // namespace focus
