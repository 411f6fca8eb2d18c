#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Python's str on UTF-8. A text may hold bytes that are not UTF-8: each counts as a character
/// then. Positions and lengths named "bytes" are bytes, others characters.
namespace focus::jinja {

inline constexpr auto npos = std::string_view::npos;

/// Bytes of the character that begins at `at`.
std::size_t character_size(std::string_view text, std::size_t at);
std::int64_t character_count(std::string_view text);
/// The byte where the character of that index begins (0 to the count).
std::size_t byte_of(std::string_view text, std::int64_t index);
char32_t character_at(std::string_view text, std::size_t at);
/// Calls f(the character's bytes, its code point) for each character, in order.
template <class F>
void each_character(std::string_view text, F&& f) {
  for (std::size_t i = 0, size = 0; i < text.size(); i += size) {
    size = character_size(text, i);
    f(text.substr(i, size), character_at(text, i));
  }
}

/// The first (or last) occurrence, in linear time, unlike std::string_view's; npos without one.
std::size_t find_bytes(std::string_view text, std::string_view part, bool last = false);

bool is_space(char32_t c);
/// str.strip(chars) of one or both sides; without `chars` whitespace.
std::string_view strip(std::string_view text, bool left, bool right,
                       const std::string_view* chars = nullptr);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// str.capitalize: the first character in title case, the others lower.
std::string capitalize(std::string_view text);
/// str.title: every character that follows one without case.
std::string title(std::string_view text);
std::string swap_case(std::string_view text);

/// What str.isalpha() and so on ask of each character.
bool is_alphabetic(char32_t c);
bool is_digit(char32_t c);
bool is_decimal(char32_t c);
bool is_numeric(char32_t c);
bool is_alphanumeric(char32_t c);
/// str.isupper, str.islower: some character has case, and none has the other.
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

/// str.splitlines() without the ends of lines.
std::vector<std::string_view> split_lines(std::string_view text);
/// str.split(): at runs of whitespace, at most `most` times (< 0: always).
std::vector<std::string_view> split_space(std::string_view text, std::int64_t most,
                                          bool from_right);
/// str.split(part), str.rsplit(part).
std::vector<std::string_view> split_at(std::string_view text, std::string_view part,
                                       std::int64_t most, bool from_right);
/// str.replace; `most` < 0: all. Stops with an error at more than `limit` bytes.
std::string replace(std::string_view text, std::string_view old, std::string_view fresh,
                    std::int64_t most, std::size_t limit);

/// repr() of a text and of a float.
std::string quoted(std::string_view text);
std::string real_text(double value);

}  // namespace focus::jinja
