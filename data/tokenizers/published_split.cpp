#include "data/tokenizers/published_split.h"

#include "data/files/utf8.h"

namespace focus {
namespace {

// Another spelling of GPT-2's.
constexpr const char* kGpt2Short =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Pattern class_pattern(const char* expression) {
  return Pattern::pcre2(expression, "the classes of characters");
}

}  // namespace

std::shared_ptr<PublishedSplit> PublishedSplit::find(const std::string& expression) {
  const auto made = [](bool gpt2, int max_digits) {
    return std::shared_ptr<PublishedSplit>(new PublishedSplit(gpt2, max_digits));
  };
  if (expression == kGpt2Expression || expression == kGpt2Short) return made(true, 0);
  if (expression == kLlama3Expression) return made(false, 3);
  if (expression == kQwen2Expression) return made(false, 1);
  return nullptr;
}

PublishedSplit::PublishedSplit(bool gpt2, int max_digits)
    : gpt2_(gpt2),
      max_digits_(max_digits),
      classes_{class_pattern("\\p{L}"), class_pattern("\\p{N}"), class_pattern("\\s")} {
  for (unsigned c = 0; c < ascii_.size(); ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    ascii_[c] = letter                            ? kLetter
                : c >= '0' && c <= '9'            ? kNumber
                : c == '\r' || c == '\n'          ? kLineBreak
                : c == ' ' || (c >= 9 && c <= 13) ? kSpace
                                                  : kOther;
  }
}

PublishedSplit::Class PublishedSplit::class_beyond_ascii(char32_t code_point) {
  std::unique_ptr<Page>& page = pages_[code_point >> 8];
  if (!page) {
    page = std::make_unique<Page>();
    for (char32_t i = 0; i < page->size(); ++i) {
      const char32_t each = (code_point & ~char32_t{0xFF}) | i;
      if (each >= 0xD800 && each < 0xE000) continue;  // surrogates are no characters
      std::string text;
      append_utf8(text, each);
      for (int kind = 0; kind < 3; ++kind)
        if (classes_[kind].find(text, 0)) (*page)[i] = static_cast<Class>(kLetter + kind);
    }
  }
  return (*page)[code_point & 0xFF];
}

PublishedSplit::Character PublishedSplit::character(std::string_view text, std::size_t begin) {
  const auto lead = static_cast<unsigned char>(text[begin]);
  if (lead < 0x80) return {ascii_[lead], begin + 1};
  return {class_beyond_ascii(utf8_code_point(text.substr(begin, 4))),
          begin + utf8_char_size(text[begin])};
}

std::size_t PublishedSplit::skip(std::string_view text, std::size_t begin, Class kind) {
  while (begin < text.size()) {
    const Character next = character(text, begin);
    if (next.kind != kind) break;
    begin = next.end;
  }
  return begin;
}

std::size_t PublishedSplit::end_of_contraction(std::string_view text, std::size_t begin) const {
  const std::string_view rest = text.substr(begin + 1, 2);
  // "Without case" includes the long s, and GPT-2 has lower case only.
  if (!gpt2_ && rest == "\xC5\xBF") return begin + 3;
  const auto letter = [&](std::size_t i) {
    const char c = i < rest.size() ? rest[i] : '\0';
    return gpt2_ || c < 'A' || c > 'Z' ? c : static_cast<char>(c - 'A' + 'a');
  };
  const char first = letter(0), second = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? begin + 3 : begin;
}

std::size_t PublishedSplit::end_of_others(std::string_view text, std::size_t begin) {
  std::size_t end = skip(text, begin, kOther);
  return gpt2_ ? end : skip(text, end, kLineBreak);
}

std::size_t PublishedSplit::end_of_blanks(std::string_view text, std::size_t begin) {
  std::size_t end = begin, last = begin, after_line_break = begin;
  while (end < text.size()) {
    const Character next = character(text, end);
    if (next.kind != kSpace && next.kind != kLineBreak) break;
    if (next.kind == kLineBreak) after_line_break = next.end;
    last = end;
    end = next.end;
  }
  if (!gpt2_ && after_line_break > begin) return after_line_break;
  // The last blank belongs to the word after it, unless it is the only one or the text ends.
  return end == text.size() || last == begin ? end : last;
}

std::size_t PublishedSplit::end_of_match(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'') {
    const std::size_t end = end_of_contraction(text, begin);
    if (end > begin) return end;
  }
  const Character first = character(text, begin);
  const Character second =
      first.end < text.size() ? character(text, first.end) : Character{kSpace, first.end};
  const bool blank = text[begin] == ' ';
  switch (first.kind) {
    case kLetter:
      return skip(text, first.end, kLetter);
    case kNumber: {
      if (gpt2_) return skip(text, first.end, kNumber);
      std::size_t end = first.end;
      for (int digits = 1; digits < max_digits_ && end < text.size(); ++digits) {
        const Character next = character(text, end);
        if (next.kind != kNumber) break;
        end = next.end;
      }
      return end;
    }
    case kOther:
      if (!gpt2_ && second.kind == kLetter) return skip(text, second.end, kLetter);
      return end_of_others(text, first.end);
    case kSpace:
      if ((blank || !gpt2_) && second.kind == kLetter) return skip(text, second.end, kLetter);
      if (blank && gpt2_ && second.kind == kNumber) return skip(text, second.end, kNumber);
      if (blank && second.kind == kOther) return end_of_others(text, second.end);
      break;
    case kLineBreak:
      break;
  }
  return end_of_blanks(text, begin);
}

}  // namespace focus
