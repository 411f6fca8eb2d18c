#include "data/chat/jinja/python_text.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/stringoptions.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "data/chat/jinja/budget.h"
#include "data/files/utf8.h"

namespace focus::jinja {
namespace {

std::size_t find_from(std::string_view text, std::string_view part, std::size_t from) {
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c & 0x80) == 0; });
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  constexpr std::uint32_t kHidden = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK |
                                    U_GC_CN_MASK | U_GC_ZL_MASK | U_GC_ZP_MASK | U_GC_ZS_MASK;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & kHidden) == 0;
}

enum class Case { upper, lower, title };

std::string mapped(std::string_view text, Case to) {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / 4))
    refuse("a string of {} bytes is too long", text.size());
  std::string result;
  icu::StringByteSink<std::string> sink(&result, static_cast<std::int32_t>(text.size()));
  const icu::StringPiece source(text.data(), static_cast<std::int32_t>(text.size()));
  UErrorCode status = U_ZERO_ERROR;
  if (to == Case::upper)
    icu::CaseMap::utf8ToUpper("", 0, source, sink, nullptr, status);
  else if (to == Case::lower)
    icu::CaseMap::utf8ToLower("", 0, source, sink, nullptr, status);
  else
    icu::CaseMap::utf8ToTitle("", U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT,
                              nullptr, source, sink, nullptr, status);
  if (U_FAILURE(status)) refuse("ICU cannot map the case of a string: {}", u_errorName(status));
  return result;
}

bool is(char32_t c, UProperty property) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), property);
}

std::int32_t numeric_type(char32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
}

bool only_case(std::string_view text, UProperty wanted, UProperty other) {
  bool some = false, others = false;
  each_character(text, [&](std::string_view, char32_t c) {
    others = others || is(c, other) || u_charType(static_cast<UChar32>(c)) == U_TITLECASE_LETTER;
    some = some || is(c, wanted);
  });
  return some && !others;
}

}  // namespace

std::size_t character_size(std::string_view text, std::size_t at) {
  if ((text[at] & 0x80) == 0) return 1;
  const std::size_t size = utf8_char_size(text[at]);
  return at + size <= text.size() && is_valid_utf8(text.substr(at, size)) ? size : 1;
}

std::int64_t character_count(std::string_view text) {
  if (is_ascii(text)) return std::ssize(text);
  std::int64_t count = 0;
  each_character(text, [&](std::string_view, char32_t) { ++count; });
  return count;
}

std::size_t byte_of(std::string_view text, std::int64_t index) {
  std::size_t i = 0;
  for (; index > 0 && i < text.size(); --index) i += character_size(text, i);
  return i;
}

char32_t character_at(std::string_view text, std::size_t at) {
  const std::size_t size = character_size(text, at);
  if (size == 1) return static_cast<unsigned char>(text[at]) < 0x80 ? text[at] : U'\uFFFD';
  return utf8_code_point(text.substr(at, size));
}

std::size_t find_bytes(std::string_view text, std::string_view part, bool last) {
  const std::string_view before = split_at(text, part, 1, last).front();
  return before.size() == text.size() && !part.empty() ? npos : before.size();
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view strip(std::string_view text, bool left, bool right,
                       const std::string_view* chars) {
  const auto goes = [&](std::size_t at, std::size_t size) {
    return chars == nullptr ? is_space(character_at(text, at))
                            : chars->find(text.substr(at, size)) != npos;
  };
  while (left && !text.empty()) {
    const std::size_t size = character_size(text, 0);
    if (!goes(0, size)) break;
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (text[at] & 0xC0) == 0x80) --at;
    if (character_size(text, at) != text.size() - at) at = text.size() - 1;
    if (!goes(at, text.size() - at)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  const auto ends = [](char32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  each_character(text, [&](std::string_view one, char32_t c) {
    if (!ends(c)) return;
    const auto at = static_cast<std::size_t>(one.data() - text.data());
    const bool second = c == '\n' && at > 0 && text[at - 1] == '\r';  // one end with it
    if (!second) lines.push_back(text.substr(begin, at - begin));
    begin = at + one.size();
  });
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::vector<std::string_view> split_space(std::string_view text, std::int64_t most,
                                          bool from_right) {
  std::vector<std::string_view> words;
  const auto end_of = [](std::string_view word) { return word.data() + word.size(); };
  each_character(text, [&](std::string_view one, char32_t c) {
    if (is_space(c)) return;
    if (words.empty() || end_of(words.back()) != one.data())
      words.push_back(one);
    else
      words.back() = {words.back().data(), words.back().size() + one.size()};
  });
  // What is left over is one word up to the end of the text that it lies at.
  if (most >= 0 && std::ssize(words) > most + 1) {
    if (from_right) {
      const auto kept = words.end() - most;
      words.front() = text.substr(0, static_cast<std::size_t>(end_of(*(kept - 1)) - text.data()));
      words.erase(words.begin() + 1, kept);
    } else {
      words.resize(most + 1);
      words.back() = text.substr(static_cast<std::size_t>(words.back().data() - text.data()));
    }
  }
  return words;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view part,
                                       std::int64_t most, bool from_right) {
  // From the right: both reversed, so that the time stays linear.
  std::string reversed, reversed_part;
  if (from_right) {
    reversed.assign(text.rbegin(), text.rend());
    reversed_part.assign(part.rbegin(), part.rend());
  }
  const std::string_view in = from_right ? reversed : text;
  const std::string_view of = from_right ? reversed_part : part;
  std::vector<std::string_view> parts;
  const auto add = [&](std::size_t begin, std::size_t end) {
    parts.push_back(text.substr(from_right ? text.size() - end : begin, end - begin));
  };
  std::size_t begin = 0;
  for (std::size_t at;
       (most < 0 || std::ssize(parts) < most) && (at = find_from(in, of, begin)) != npos;
       begin = at + of.size())
    add(begin, at);
  add(begin, text.size());
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::string replace(std::string_view text, std::string_view old, std::string_view fresh,
                    std::int64_t most, std::size_t limit) {
  std::string result;
  const auto put = [&](std::string_view part) {
    if (result.size() + part.size() > limit) refuse("replace() makes more than {} bytes", limit);
    result += part;
  };
  std::size_t begin = 0;
  for (std::int64_t done = 0; most < 0 || done < most; ++done) {
    if (old.empty()) {
      put(fresh);
      if (begin >= text.size()) return result;
      const std::size_t size = character_size(text, begin);
      put(text.substr(begin, size));
      begin += size;
      continue;
    }
    const std::size_t at = find_from(text, old, begin);
    if (at == npos) break;
    put(text.substr(begin, at - begin));
    put(fresh);
    begin = at + old.size();
  }
  put(text.substr(begin));
  return result;
}

std::string quoted(std::string_view text) {
  const bool single = text.find('\'') != text.npos, both = text.find('"') != text.npos;
  const char quote = single && !both ? '"' : '\'';
  std::string result(1, quote);
  each_character(text, [&](std::string_view one, char32_t c) {
    if (c == static_cast<unsigned char>(quote) || c == '\\')
      (result += '\\') += static_cast<char>(c);
    else if (c == '\n' || c == '\r' || c == '\t')
      (result += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    else if (is_printable(c))
      result += one;
    else
      result += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c))
                : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c))
                              : fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c));
  });
  return result += quote;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  const std::string text = fmt::format("{}", value);
  return text.find_first_not_of("-0123456789") == text.npos ? text + ".0" : text;
}

// Case and classes of characters, by ICU with no language's own rules, as Python has them.

std::string upper(std::string_view text) { return mapped(text, Case::upper); }
std::string lower(std::string_view text) { return mapped(text, Case::lower); }

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const std::size_t first = character_size(text, 0);
  // The rest is lowered within the whole: a sigma is final by what precedes it.
  const std::string low = lower(text), head = lower(text.substr(0, first));
  return mapped(text.substr(0, first), Case::title) + low.substr(std::min(head.size(), low.size()));
}

std::string title(std::string_view text) {
  std::string result, word;  // a word: characters with case, one after the other
  each_character(text, [&](std::string_view one, char32_t c) {
    if (is(c, UCHAR_CASED))
      word += one;
    else
      (result += capitalize(std::exchange(word, {}))) += one;
  });
  return result + capitalize(word);
}

std::string swap_case(std::string_view text) {
  std::string result;
  each_character(text, [&](std::string_view one, char32_t c) {
    result += is(c, UCHAR_UPPERCASE)   ? lower(one)
              : is(c, UCHAR_LOWERCASE) ? upper(one)
                                       : std::string(one);
  });
  return result;
}

bool is_alphabetic(char32_t c) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0;
}
bool is_numeric(char32_t c) { return numeric_type(c) != U_NT_NONE; }
bool is_decimal(char32_t c) { return numeric_type(c) == U_NT_DECIMAL; }
bool is_digit(char32_t c) { return is_decimal(c) || numeric_type(c) == U_NT_DIGIT; }
bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_numeric(c); }

bool is_upper(std::string_view text) { return only_case(text, UCHAR_UPPERCASE, UCHAR_LOWERCASE); }
bool is_lower(std::string_view text) { return only_case(text, UCHAR_LOWERCASE, UCHAR_UPPERCASE); }

}  // namespace focus::jinja
