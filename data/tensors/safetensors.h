#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/files/input_file.h"
#include "data/files/mapped_file.h"
#include "data/tensors/tensor_source.h"

namespace focus {

/// One safetensors file. The constructor reads the header and refuses, with std::runtime_error,
/// whatever the format forbids: sizes that do not add up, gaps, overlaps, bytes left over, twice
/// the same name, negative or fractional numbers, unknown fields. The data is read on demand with
/// pread, where a file that shrinks meanwhile is an error, or mapped (see MappedFile).
class SafetensorsFile : public TensorSource {
 public:
  explicit SafetensorsFile(std::filesystem::path path);
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_raw(std::string_view name, std::vector<std::byte>& bytes) const override;
  void read_into(std::string_view name, std::span<std::byte> out) const override;
  std::optional<TensorBytes> map(std::string_view name) const override;
  std::string describe() const override { return path_.string(); }
  std::vector<std::filesystem::path> files() const override { return {path_}; }
  /// The header's `__metadata__`.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Range {
    std::uint64_t begin = 0;  // in the file
    std::uint64_t size = 0;
  };
  const Range& range_of(std::string_view name) const;

  std::filesystem::path path_;  // before file_, which is opened by it
  InputFile file_;
  mutable std::shared_ptr<const MappedFile> mapped_;  // once it was asked for
  std::vector<TensorInfo> tensors_;                   // sorted by name
  std::vector<Range> ranges_;                         // of each tensor
  std::map<std::string, std::string> metadata_;
};

/// The weights of a Hugging Face folder: model.safetensors, or the shards that
/// model.safetensors.index.json names. Every tensor must lie in the file that the index gives; a
/// notice counts what else the shards hold. Throws std::runtime_error.
std::unique_ptr<TensorSource> open_safetensors_folder(const std::filesystem::path& folder);

/// Writes `tensors` as F32 (in both builds), sorted by name, durably. Throws std::invalid_argument
/// for a name that is empty, reserved, not UTF-8 or there twice, and for an undefined tensor.
void write_safetensors(const std::filesystem::path& path,
                       std::vector<std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace focus
