#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "focus/adapters/lora/lora.h"

namespace focus {

// ---- PEFT's files: a folder of adapter_config.json and adapter_model.safetensors ----------------

/// What an adapter_config.json says. Throws std::runtime_error or std::invalid_argument naming file
/// and key: whatever changes the mathematics and is not supported is refused.
LoraConfig parse_peft_config(const std::string& json, const std::string& where);
/// Reads the folder for this decoder; not attached yet.
std::unique_ptr<LoraModel> read_peft_adapter(const std::filesystem::path& folder, Decoder& decoder);

// ---- a GGUF file, as llama.cpp's --lora takes it ------------------------------------------------

/// True for a GGUF file that says that it is an adapter.
bool is_gguf_adapter(const std::filesystem::path& path);
/// Reads it for this decoder, whose architecture and shapes it must have; not attached yet. Of each
/// matrix that it adds to it has a pair NAME.weight.lora_a [rank, in] and NAME.weight.lora_b [out,
/// rank], rows in the file's own order. Throws std::runtime_error naming what is wrong: another
/// kind of adapter, half of a pair, a matrix that is not one of the decoder's linears, different
/// ranks. Those of norms are ignored, as llama.cpp does.
std::unique_ptr<LoraModel> read_gguf_adapter(const std::filesystem::path& path, Decoder& decoder);

}  // namespace focus
