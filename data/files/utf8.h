#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace focus {

/// The text with every ill-formed UTF-8 sequence replaced by U+FFFD, one for each maximal part of a
/// sequence (the Unicode standard's practice, and what a lossy decode gives elsewhere).
std::string replace_invalid_utf8(std::string_view text);

/// True where `text` is well-formed UTF-8.
bool is_valid_utf8(std::string_view text);

/// Ill-formed sequences of a text.
struct InvalidUtf8 {
  std::size_t count = 0, first = 0;  // the byte at which the first one begins, from 0
  std::size_t beyond_ascii = 0;      // well-formed characters of several bytes
};
InvalidUtf8 count_invalid_utf8(std::string_view text);

/// Bytes of the character that starts with `lead`, in well-formed UTF-8.
std::size_t utf8_char_size(char lead);

/// The code point at the start of `text`, which is well-formed UTF-8 and not empty.
char32_t utf8_code_point(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

/// The text with `by` in the place of each `part`, from the left.
std::string replaced(std::string_view text, std::string_view part, std::string_view by);

}  // namespace focus
