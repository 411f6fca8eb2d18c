#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/input_file.h"
#include "data/files/mapped_file.h"
#include "data/gguf/gguf_header.h"
#include "data/tensors/tensor_source.h"

namespace focus {

/// True for a file that is to be read as GGUF: by its name, or by what it begins with.
bool is_gguf(const std::filesystem::path& path);

/// The tensors of a GGUF file, under the names that they have there, in PyTorch's order of
/// dimensions; or of a model that is split in parts, opened by the first of them
/// (NAME-00001-of-00003.gguf). The constructor reads the headers and throws std::runtime_error,
/// one line, for whatever the format forbids (see parse_gguf), a part that is missing or of another
/// split, and a tensor that two parts hold.
class GgufSource : public TensorSource {
 public:
  explicit GgufSource(const std::filesystem::path& path);

  /// The first part has all keys.
  const GgufMetadata& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_raw(std::string_view name, std::vector<std::byte>& bytes) const override;
  void read_into(std::string_view name, std::span<std::byte> out) const override;
  std::optional<TensorBytes> map(std::string_view name) const override;
  std::string describe() const override { return path_.string(); }
  TensorNaming naming() const override { return TensorNaming::gguf; }
  std::vector<std::filesystem::path> files() const override;

 private:
  struct Part {
    explicit Part(const std::filesystem::path& where);
    std::filesystem::path path;
    InputFile file;
    std::shared_ptr<const MappedFile> mapped;
  };
  struct Place {
    const Part* part = nullptr;
    std::uint64_t begin = 0, bytes = 0;  // in the part
  };
  /// Opens a file and adds its tensors to `entries`.
  GgufMetadata add_part(const std::filesystem::path& path,
                        std::vector<std::pair<TensorInfo, Place>>& entries);
  const Place& place_of(std::string_view name) const;

  std::filesystem::path path_;
  GgufMetadata metadata_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<TensorInfo> tensors_;  // sorted by name
  std::vector<Place> places_;        // of each tensor
};

}  // namespace focus
