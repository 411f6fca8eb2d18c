#include "data/chat/jinja/python_text.h"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

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

}  // namespace

std::size_t character_size(std::string_view text, std::size_t at) {
  if ((text[at] & 0x80) == 0) return 1;
  const std::size_t size = utf8_char_size(text[at]);
  return at + size <= text.size() && is_valid_utf8(text.substr(at, size)) ? size : 1;
}

std::int64_t character_count(std::string_view text) {
  if (is_ascii(text)) return std::ssize(text);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += character_size(text, i)) ++count;
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
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = character_size(text, i);
    if (!ends(character_at(text, i))) {
      i += size;
      continue;
    }
    lines.push_back(text.substr(begin, i - begin));
    i += text.substr(i, 2) == "\r\n" ? 2 : size;
    begin = i;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::vector<std::string_view> split_space(std::string_view text, std::int64_t most,
                                          bool from_right) {
  std::vector<std::pair<std::size_t, std::size_t>> words;  // begin, end
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = character_size(text, i);
    if (!is_space(character_at(text, i))) {
      if (words.empty() || words.back().second != i) words.emplace_back(i, i);
      words.back().second = i + size;
    }
    i += size;
  }
  // What is left over is one word up to the end of the text that it lies at.
  if (most >= 0 && std::ssize(words) > most + 1) {
    if (from_right) {
      const auto kept = words.end() - most;
      words.front() = {0, (kept - 1)->second};
      words.erase(words.begin() + 1, kept);
    } else {
      words.resize(static_cast<std::size_t>(most) + 1);
      words.back().second = text.size();
    }
  }
  std::vector<std::string_view> parts;
  for (const auto& [begin, end] : words) parts.push_back(text.substr(begin, end - begin));
  return parts;
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
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = character_size(text, i);
    const char32_t c = character_at(text, i);
    if (c == static_cast<unsigned char>(quote) || c == '\\')
      (result += '\\') += static_cast<char>(c);
    else if (c == '\n' || c == '\r' || c == '\t')
      (result += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    else if (is_printable(c))
      result += text.substr(i, size);
    else
      result += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c))
                : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c))
                              : fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c));
    i += size;
  }
  return result += quote;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  const std::string text = fmt::format("{}", value);
  return text.find_first_not_of("-0123456789") == text.npos ? text + ".0" : text;
}

}  // namespace focus::jinja
