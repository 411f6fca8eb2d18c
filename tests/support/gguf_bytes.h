#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace focus {

/// GGUF files for tests, sound ones and others: every count, type and offset can be said.
struct GgufFile {
  /// A number as it lies in a file.
  template <class T>
  static std::string raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string string(const std::string& text) {
    return raw<std::uint64_t>(text.size()) + text;
  }

  std::uint32_t version = 3, alignment = 32;
  std::string keys, infos, data;
  std::uint64_t key_count = 0, tensor_count = 0;

  /// A value of type `type`, by the format's number, as its bytes.
  GgufFile& value(const std::string& key, std::uint32_t type, const std::string& bytes) {
    ++key_count;
    keys += string(key) + raw(type) + bytes;
    return *this;
  }
  GgufFile& text(const std::string& key, const std::string& x) { return value(key, 8, string(x)); }
  GgufFile& u32(const std::string& key, std::uint32_t x) { return value(key, 4, raw(x)); }
  GgufFile& i32(const std::string& key, std::int32_t x) { return value(key, 5, raw(x)); }
  GgufFile& f32(const std::string& key, float x) { return value(key, 6, raw(x)); }
  GgufFile& flag(const std::string& key, bool x) { return value(key, 7, raw<std::uint8_t>(x)); }
  GgufFile& array(const std::string& key, std::uint32_t type, std::uint64_t count,
                  const std::string& bytes) {
    return value(key, 9, raw(type) + raw(count) + bytes);
  }
  GgufFile& texts(const std::string& key, const std::vector<std::string>& all) {
    std::string bytes;
    for (const std::string& x : all) bytes += string(x);
    return array(key, 8, all.size(), bytes);
  }
  template <class T>
  GgufFile& numbers(const std::string& key, std::uint32_t type, const std::vector<T>& all) {
    std::string bytes;
    for (const T x : all) bytes += raw(x);
    return array(key, type, all.size(), bytes);
  }

  /// A line of the list of tensors, dimensions as GGUF has them: the last first.
  GgufFile& info(const std::string& name, const std::vector<std::uint64_t>& dims,
                 std::uint32_t type, std::uint64_t offset) {
    ++tensor_count;
    infos += string(name) + raw(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) infos += raw(dim);
    infos += raw(type) + raw(offset);
    return *this;
  }
  /// A tensor whose numbers are these bytes, where it must lie.
  GgufFile& tensor(const std::string& name, const std::vector<std::uint64_t>& dims,
                   std::uint32_t type, const std::string& bytes) {
    pad(data);
    info(name, dims, type, data.size());
    data += bytes;
    return *this;
  }
  GgufFile& floats(const std::string& name, const std::vector<std::uint64_t>& dims,
                   const std::vector<float>& all) {
    std::string bytes;
    for (const float x : all) bytes += raw(x);
    return tensor(name, dims, 0, bytes);
  }

  std::string head() const {
    return "GGUF" + raw(version) + raw(tensor_count) + raw(key_count) + keys + infos;
  }
  std::string bytes() const {
    std::string all = head();
    if (!data.empty()) pad(all);
    return all + data;
  }

 private:
  void pad(std::string& bytes) const {
    while (bytes.size() % alignment != 0) bytes += '\0';
  }
};

}  // namespace focus
