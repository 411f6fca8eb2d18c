#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/gguf/gguf_metadata.h"
#include "data/tensors/tensor_source.h"

namespace focus {

/// GGML's number of a type, and its name there: "Q4_K".
struct GgmlType {
  std::uint32_t number;
  const char* name;
  NumberFormat format;  // `other`: a type that is known by name and not read
};
/// Every type that GGML has or had.
std::span<const GgmlType> ggml_types();

/// One tensor as a GGUF file lists it.
struct GgufEntry {
  TensorInfo info;          // PyTorch's order of dimensions
  std::uint64_t begin = 0;  // in the file
  std::uint64_t bytes = 0;
};

/// All of a GGUF file but the tensors' numbers.
struct GgufHeader {
  std::uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufEntry> tensors;  // as they lie
};

inline constexpr std::string_view kGgufMagic = "GGUF";

/// Reads the header of a whole file and holds it to every rule of the format and to the file's
/// size; `where` is its path, for messages. Throws std::runtime_error, one line.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where);

}  // namespace focus
