#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/gguf/gguf_metadata.h"

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
  void key(std::string_view key, GgufType type);
  void array(std::string_view key, GgufType type, std::size_t count);

  std::set<std::string, std::less<>> keys_;
  std::string bytes_;
};

/// A number as it lies in a GGUF file, appended.
template <class T>
void append_gguf(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
/// A length as u64 and the text's bytes.
void append_gguf_text(std::string& bytes, std::string_view text);

}  // namespace focus
