#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "focus/adapters/lora/lora.h"

// LoRA in PEFT's files: a folder of adapter_config.json and adapter_model.safetensors.
namespace focus {

inline constexpr const char* kPeftConfig = "adapter_config.json";
inline constexpr const char* kPeftWeights = "adapter_model.safetensors";

/// What an adapter_config.json says. Throws std::runtime_error or std::invalid_argument naming file
/// and key: whatever changes the mathematics and is not supported is refused.
LoraConfig parse_peft_config(const std::string& json, const std::string& where);
/// The text that parse_peft_config and PEFT read back.
std::string write_peft_config(const LoraModel& lora, const std::string& base);

/// Reads the folder for this decoder; not attached yet.
std::unique_ptr<LoraModel> read_peft_adapter(const std::filesystem::path& folder, Decoder& decoder);
/// Writes both files into a folder that is there; `base` is the name of the base in the config.
/// Each appears whole or not at all, the config last: without it there is no adapter.
void write_peft_adapter(const std::filesystem::path& folder, const LoraModel& lora,
                        const std::string& base);

}  // namespace focus
