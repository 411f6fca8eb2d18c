#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/tensors/tensor_source.h"

namespace focus {

/// One safetensors file. The constructor reads the header and refuses, with std::runtime_error,
/// whatever the format forbids: sizes that do not add up, gaps, overlaps, bytes left over, twice
/// the same name, negative or fractional numbers, unknown fields.
class SafetensorsFile : public TensorFiles {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
};

/// The weights of a Hugging Face folder: model.safetensors, or the shards that
/// model.safetensors.index.json names. Every tensor must lie in the file that the index gives; a
/// notice counts what else the shards hold. Throws std::runtime_error.
std::unique_ptr<TensorSource> open_safetensors_folder(const std::filesystem::path& folder);

/// Writes one safetensors file, all in one type. Throws std::invalid_argument also for a name that
/// is empty, reserved, not UTF-8 or there twice.
class SafetensorsWriter : public TensorFileWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path,
                    const std::vector<std::pair<std::string, Shape>>& tensors, Dtype dtype,
                    const std::map<std::string, std::string>& metadata = {});
  void commit();
};

/// Writes `tensors` as F32 (in both builds), sorted by name, durably. Throws std::invalid_argument
/// as SafetensorsWriter does, and for an undefined tensor.
void write_safetensors(const std::filesystem::path& path,
                       std::vector<std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace focus
