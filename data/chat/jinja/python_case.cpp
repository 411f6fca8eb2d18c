#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/stringoptions.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include <limits>

#include "data/chat/jinja/budget.h"
#include "data/chat/jinja/python_text.h"
#include "data/files/utf8.h"

// Case and classes of characters, by ICU with no language's own rules, as Python has them.
namespace focus::jinja {
namespace {

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
  bool some = false;
  for (std::size_t i = 0; i < text.size(); i += character_size(text, i)) {
    const char32_t c = character_at(text, i);
    if (is(c, other) || u_charType(static_cast<UChar32>(c)) == U_TITLECASE_LETTER) return false;
    some = some || is(c, wanted);
  }
  return some;
}

}  // namespace

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
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    // One word: a character and those with case after it.
    const std::size_t first = character_size(text, i);
    std::size_t end = i + first;
    if (!is(character_at(text, i), UCHAR_CASED)) {
      result += text.substr(i, first);
      i = end;
      continue;
    }
    while (end < text.size() && is(character_at(text, end), UCHAR_CASED))
      end += character_size(text, end);
    result += capitalize(text.substr(i, end - i));
    i = end;
  }
  return result;
}

std::string swap_case(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = character_size(text, i);
    const std::string_view one = text.substr(i, size);
    const char32_t c = character_at(text, i);
    result += is(c, UCHAR_UPPERCASE)   ? lower(one)
              : is(c, UCHAR_LOWERCASE) ? upper(one)
                                       : std::string(one);
    i += size;
  }
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
