#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/gguf/gguf.h"
#include "data/tensors/tensor_source.h"

namespace focus {

/// Keys and values of a GGUF file that is to be written, in the order in which they are added, each
/// in the one type that llama.cpp takes for it. Throws std::invalid_argument for a key that is
/// empty or there already.
class GgufKeys {
 public:
  void text(std::string_view key, std::string_view value);
  void u32(std::string_view key, std::uint32_t value);
  void f32(std::string_view key, float value);
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, std::span<const std::string> values);
  void i32s(std::string_view key, std::span<const std::int32_t> values);
  void f32s(std::string_view key, std::span<const float> values);
  void flags(std::string_view key, const std::vector<bool>& values);
  /// As another file has it, whatever its type.
  void copy(const GgufMetadata& from, std::string_view key);

  bool has(std::string_view key) const { return keys_.contains(key); }
  std::size_t count() const { return keys_.size(); }
  /// All of them as they lie in a file.
  const std::string& bytes() const { return bytes_; }

 private:
  void key(std::string_view key);
  template <class T>
  void number(std::string_view key, GgufType type, T value);
  template <class T, class Values>
  void array(std::string_view key, GgufType type, const Values& values);

  std::set<std::string, std::less<>> keys_;
  std::string bytes_;
};

/// GGML's number and name of a type that can be written: F32, F16, BF16, Q8_0. Throws
/// std::invalid_argument for another.
const GgmlType& ggml_type_of(Dtype dtype);

/// Writes one GGUF file of version 3. Throws std::invalid_argument also for a name that llama.cpp
/// does not take (empty, over 63 bytes, there twice) and for rows that are no whole blocks.
class GgufWriter : public TensorFileWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufKeys& keys,
             const std::vector<AnnouncedTensor>& tensors);
  /// Reads the file back; what `verify` throws of it leaves no file.
  void commit(const std::function<void(const GgufSource&)>& verify = {});
};

}  // namespace focus
