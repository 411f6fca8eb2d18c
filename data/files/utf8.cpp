#include "data/files/utf8.h"

namespace focus {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t size = 0;  // bytes of the character, or of the maximal part to replace
  bool valid = false;
};

/// The first sequence of a text that is not empty.
Sequence first_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t size = utf8_char_size(text[0]);
  // The second byte's range rules out overlong forms, surrogates and values above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < size; ++i) {
    if (i >= text.size()) return {i, false};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {i, false};
  }
  return {size, true};
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
  const std::size_t size = utf8_char_size(text[0]);
  const auto lead = static_cast<unsigned char>(text[0]);
  char32_t code_point = size == 1 ? lead : lead & (0xFF >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    code_point = (code_point << 6) | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  return code_point;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

}  // namespace focus
