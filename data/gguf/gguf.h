#pragma once

#include <cstdint>
#include <filesystem>
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

/// All of a GGUF file but the tensors' numbers.
struct GgufHeader {
  std::uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;  // as they lie
};

inline constexpr std::string_view kGgufMagic = "GGUF";

/// Reads the header of a whole file and holds it to every rule of the format and to the file's
/// size; `where` is its path, for messages. Throws std::runtime_error, one line.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where);

/// True for a file that is to be read as GGUF: by its name, or by what it begins with.
bool is_gguf(const std::filesystem::path& path);

/// The tensors of a GGUF file, under the names that they have there, in PyTorch's order of
/// dimensions; or of a model that is split in parts, opened by the first of them
/// (NAME-00001-of-00003.gguf). The constructor reads the headers and throws std::runtime_error,
/// one line, for whatever the format forbids (see parse_gguf), a part that is missing or of another
/// split, and a tensor that two parts hold.
class GgufSource : public TensorFiles {
 public:
  explicit GgufSource(const std::filesystem::path& path);

  /// The first part has all keys.
  const GgufMetadata& metadata() const { return metadata_; }
  TensorNaming naming() const override { return TensorNaming::gguf; }

 private:
  /// Opens a file and adds its tensors to `tensors`.
  GgufMetadata add_part(const std::filesystem::path& path, std::vector<TensorInfo>& tensors);

  GgufMetadata metadata_;
};

}  // namespace focus
