#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// The types of a GGUF file's values, by the format's numbers.
enum class GgufType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

/// Bytes of a GGUF file, read in order. Every step is held against their end: what they say of
/// sizes and counts is never believed. Throws std::runtime_error naming the file and what it was
/// about to read.
class GgufBytes {
 public:
  /// `where` is the file, for messages; both must outlive this.
  GgufBytes(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  const std::string& where() const { return where_; }
  std::size_t at() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }
  std::span<const std::byte> since(std::size_t begin) const {
    return bytes_.subspan(begin, at_ - begin);
  }

  /// The next ones. The message of a file that ends before contains `what`.
  std::span<const std::byte> take(std::size_t bytes, std::string_view what);
  /// The next number, little-endian.
  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  /// A length as u64 and that many bytes, which may be any.
  std::string_view text(std::string_view what);
  /// A count of things of at least `bytes_each`: refused where that many cannot follow.
  std::size_t count(std::size_t bytes_each, std::string_view what);

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
};

/// The keys and values of a GGUF file. Each reader gives nothing where the key is absent, and
/// throws std::runtime_error naming file, key, the wanted type and the one found where the value is
/// of another type. Strings are the file's bytes: they need not be UTF-8.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  /// Reads `count` pairs. Refuses empty and repeated keys, unknown types and arrays of arrays.
  GgufMetadata(GgufBytes& bytes, std::size_t count);

  /// The file, for messages.
  const std::string& where() const { return where_; }
  std::vector<std::string> keys() const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  auto text(std::string_view key) const { return only<std::string>(key); }
  /// The type is any integer within 64 signed bits.
  auto integer(std::string_view key) const { return only<std::int64_t>(key); }
  /// The type is any number. A float32 gives the shortest decimal that reads back to it, which is
  /// what its writer meant: 1e-05, not 9.9999997e-06.
  auto number(std::string_view key) const { return only<double>(key); }
  auto flag(std::string_view key) const { return only<bool>(key); }
  auto texts(std::string_view key) const { return elements<std::string>(key); }
  auto integers(std::string_view key) const { return elements<std::int64_t>(key); }
  auto numbers(std::string_view key) const { return elements<double>(key); }
  auto flags(std::string_view key) const { return elements<bool>(key); }
  bool is_array(std::string_view key) const;
  /// The value as the file has it: its type and what follows. Throws where there is no such key.
  std::span<const std::byte> stored(std::string_view key) const;

 private:
  struct Value {
    GgufType type{}, element{};  // of an array's elements
    std::size_t count = 1;
    std::size_t begin = 0, elements = 0, end = 0;  // in bytes_: the type, the elements, the rest
  };
  const Value* find(std::string_view key) const;
  Value skip_value(GgufBytes& bytes, const std::string& what) const;
  /// The elements of a value, all of what T may be read from, or nothing without the key; of a
  /// value that is no array one. For std::string, std::int64_t, double and bool.
  template <class T>
  std::optional<std::vector<T>> elements(std::string_view key, bool array = true) const;
  template <class T>
  std::optional<T> only(std::string_view key) const {
    const auto values = elements<T>(key, false);
    return values ? std::optional<T>(values->front()) : std::nullopt;
  }

  std::string where_;
  std::vector<std::byte> bytes_;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace focus
