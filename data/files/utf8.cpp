#include "data/files/utf8.h"

#include <unicode/utf8.h>

#include <algorithm>
#include <cstdint>

namespace focus {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t size = 0;  // bytes of the character, or of the maximal part to replace
  bool valid = false;
};

/// The first sequence of a text that is not empty; `code_point` is negative of one to replace.
Sequence first_sequence(std::string_view text, UChar32& code_point) {
  std::int32_t end = 0;
  const auto most = static_cast<std::int32_t>(std::min<std::size_t>(text.size(), U8_MAX_LENGTH));
  U8_NEXT(text.data(), end, most, code_point);
  return {static_cast<std::size_t>(end), code_point >= 0};
}

Sequence first_sequence(std::string_view text) {
  UChar32 code_point = 0;
  return first_sequence(text, code_point);
}

}  // namespace

std::size_t utf8_char_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Sequence sequence = first_sequence(text);
    if (!sequence.valid) return false;
    text.remove_prefix(sequence.size);
  }
  return true;
}

InvalidUtf8 count_invalid_utf8(std::string_view text) {
  InvalidUtf8 invalid;
  for (std::size_t at = 0; at < text.size();) {
    const Sequence sequence = first_sequence(text.substr(at));
    if (!sequence.valid && invalid.count++ == 0) invalid.first = at;
    if (sequence.valid && sequence.size > 1) ++invalid.beyond_ascii;
    at += sequence.size;
  }
  return invalid;
}

std::string replace_invalid_utf8(std::string_view text) {
  if (is_valid_utf8(text)) return std::string(text);
  std::string result;
  result.reserve(text.size() + 16);
  while (!text.empty()) {
    const Sequence sequence = first_sequence(text);
    result += sequence.valid ? text.substr(0, sequence.size) : kReplacement;
    text.remove_prefix(sequence.size);
  }
  return result;
}

char32_t utf8_code_point(std::string_view text) {
  UChar32 code_point = 0;
  first_sequence(text, code_point);
  return static_cast<char32_t>(code_point);
}

void append_utf8(std::string& text, char32_t code_point) {
  char bytes[U8_MAX_LENGTH];
  std::size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, static_cast<std::uint32_t>(code_point));
  text.append(bytes, size);
}

std::string replaced(std::string_view text, std::string_view part, std::string_view by) {
  std::string result;
  for (std::size_t at; (at = text.find(part)) != text.npos; text.remove_prefix(at + part.size()))
    result.append(text.substr(0, at)).append(by);
  return result.append(text);
}

}  // namespace focus
