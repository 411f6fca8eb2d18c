#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace focus {

/// Serializes a protocol buffer message field by field.
class MessageWriter {
 public:
  void integer(std::uint64_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
  }
  void number(std::uint64_t field, float value) {
    varint((field << 3) | 5);
    fixed(std::bit_cast<std::uint32_t>(value));
  }
  void number(std::uint64_t field, double value) {
    varint((field << 3) | 1);
    fixed(std::bit_cast<std::uint64_t>(value));
  }
  /// A text, or a message's bytes().
  void text(std::uint64_t field, std::string_view value) {
    varint((field << 3) | 2);
    varint(value.size());
    bytes_ += value;
  }
  std::string& bytes() { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>((value & 0x7F) | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  /// In little-endian order, whatever the machine's.
  template <class Bits>
  void fixed(Bits bits) {
    for (std::size_t i = 0; i < sizeof(Bits); ++i)
      bytes_.push_back(static_cast<char>((bits >> (8 * i)) & 0xFF));
  }

  std::string bytes_;
};

}  // namespace focus
