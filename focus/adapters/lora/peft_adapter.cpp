#include "focus/adapters/lora/peft_adapter.h"

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/files/json_reader.h"
#include "data/tensors/safetensors.h"
#include "data/text/text.h"
#include "layers/json_fields.h"

namespace focus {
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

void write_peft_adapter(const std::filesystem::path& folder, const LoraModel& lora,
                        const std::string& base) {
  std::filesystem::remove(folder / kPeftConfig);
  write_safetensors(folder / kPeftWeights, lora.tensors(), {{"format", "pt"}});
  write_file_durably(folder / kPeftConfig, std::string_view(write_peft_config(lora, base)));
}

void LoraModel::write_beside(const std::filesystem::path& folder, const std::string& base) const {
  write_peft_adapter(folder, *this, base);
}

}  // namespace focus
