#pragma once

#include <filesystem>
#include <memory>

#include "focus/adapters/lora/lora.h"

// LoRA in a GGUF file, as llama.cpp's --lora takes it: of each matrix that it adds to a pair
// NAME.weight.lora_a [rank, in] and NAME.weight.lora_b [out, rank], rows in the file's own order.
namespace focus {

/// True for a GGUF file that says that it is an adapter.
bool is_gguf_adapter(const std::filesystem::path& path);

/// Reads it for this decoder, whose architecture and shapes it must have; not attached yet. Throws
/// std::runtime_error naming what is wrong: another kind of adapter, half of a pair, a matrix that
/// is not one of the decoder's linears, different ranks. Those of norms are ignored, as
/// llama.cpp does.
std::unique_ptr<LoraModel> read_gguf_adapter(const std::filesystem::path& path, Decoder& decoder);

}  // namespace focus
