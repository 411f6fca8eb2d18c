#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/tensors/tensor_source.h"

namespace focus {

/// One tensor as the header of a safetensors file declares it.
struct SafetensorsEntry {
  TensorInfo info;
  std::uint64_t begin = 0;  // in the data that follows the header
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // sorted by name
  std::map<std::string, std::string> metadata;
};

/// Reads a header's JSON and holds it to every rule of the format. `data_bytes` is how many bytes
/// follow it in the file; `file` is for messages. Throws std::runtime_error.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& file);

}  // namespace focus
