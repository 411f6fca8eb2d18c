#include "data/chat/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <regex>

#include "data/chat/jinja/budget.h"
#include "data/chat/jinja/python_text.h"
#include "data/files/utf8.h"

namespace focus::jinja {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Lexer {
 public:
  Lexer(std::string_view source, int& line) : source_(source), line_(line) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    put(TokenKind::end, 0);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }
  bool here(std::string_view text) const { return rest().starts_with(text); }

  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(source_.substr(at_, bytes), '\n'));
    at_ += bytes;
  }
  void put(TokenKind kind, std::size_t bytes) {
    tokens_.push_back({kind, line_, source_.substr(at_, bytes)});
    advance(bytes);
  }
  std::size_t after_space(std::size_t at) const {
    return source_.size() - strip(source_.substr(at), true, false).size();
  }

  /// Where the next tag begins, from `at_`; npos where none does.
  std::size_t next_tag() const {
    for (std::size_t i = at_; (i = source_.find('{', i)) != npos; ++i)
      if (i + 1 < source_.size() && std::string_view("%{#").find(source_[i + 1]) != npos) return i;
    return npos;
  }

  /// Text up to a tag (at byte `tag`), less what the tag's sign and lstrip_blocks take.
  void data(std::size_t tag, char sign, bool variable) {
    const std::size_t begin = at_;
    std::string_view text = source_.substr(begin, tag - begin);
    if (sign == '-') {
      text = strip(text, false, true);
    } else if (sign != '+' && !variable) {
      const std::size_t line = text.rfind('\n') + 1;  // 0 in the first line
      const bool at_line_start = line > 0 || begin == 0 || source_[begin - 1] == '\n';
      if (at_line_start && strip(text.substr(line), true, false).empty())
        text = text.substr(0, line);
    }
    if (!text.empty()) tokens_.push_back({TokenKind::data, line_, text});
    advance(tag - begin);
  }

  static char sign_at(std::string_view source, std::size_t at) {
    const char c = at < source.size() ? source[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void root() {
    const std::size_t tag = next_tag();
    if (tag == npos) {
      put(TokenKind::data, source_.size() - at_);
      return;
    }
    const char kind = source_[tag + 1], sign = sign_at(source_, tag + 2);
    data(tag, sign, kind == '{');
    if (kind == '%' && raw()) return;
    const std::size_t size = sign == '\0' ? 2 : 3;
    if (kind == '#') {
      advance(size);
      comment();
    } else {
      put(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin, size);
      inside(kind == '%');
    }
  }

  /// What follows the end of a comment or block: "-" takes all whitespace, "+" nothing, and
  /// without a sign one newline goes (trim_blocks).
  void after_end(char sign) {
    if (sign == '-')
      advance(after_space(at_) - at_);
    else if (sign != '+' && here("\n"))
      advance(1);
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == npos) refuse("a comment has no end");
    const char sign = end > at_ ? sign_at(source_, end - 1) : '\0';
    advance(end + 2 - at_);
    after_end(sign);
  }

  /// The bytes of "{%", a sign, `name` and its end at byte `at`; 0 for anything
  /// else. `sign` is that of the end.
  std::size_t tag_size(std::size_t at, std::string_view name, char& sign) const {
    std::size_t i = at + 2;
    if (sign_at(source_, i) != '\0') ++i;
    i = after_space(i);
    if (!source_.substr(i).starts_with(name)) return 0;
    i = after_space(i + name.size());
    sign = sign_at(source_, i);
    if (sign != '\0') ++i;
    return source_.substr(i).starts_with("%}") ? i + 2 - at : 0;
  }

  /// {% raw %}...{% endraw %}, if it begins here.
  bool raw() {
    char sign = '\0';
    const std::size_t size = tag_size(at_, "raw", sign);
    if (size == 0 || sign == '+') return false;
    advance(size);
    if (sign == '-') advance(after_space(at_) - at_);
    for (std::size_t end = at_; (end = source_.find("{%", end)) != npos; end += 2)
      if (const std::size_t end_size = tag_size(end, "endraw", sign); end_size > 0) {
        data(end, sign_at(source_, end + 2), false);
        advance(end_size);
        after_end(sign);
        return true;
      }
    refuse("a raw block has no end");
  }

  /// The tokens of a tag, and its end.
  void inside(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    for (std::string open; at_ < source_.size();) {
      const char sign = sign_at(source_, at_);
      const bool signed_end =
          (sign == '-' || (block && sign == '+')) && rest().substr(1).starts_with(close);
      if (open.empty() && (signed_end || here(close))) {
        put(block ? TokenKind::block_end : TokenKind::variable_end, signed_end ? 3 : 2);
        if (block || signed_end) after_end(signed_end ? sign : '\0');
        return;
      }
      if (is_space(character_at(source_, at_)))
        advance(after_space(at_) - at_);
      else
        token(open);
    }
  }

  void token(std::string& open) {
    const char c = source_[at_];
    if (c >= '0' && c <= '9')
      number();
    else if (is_word(c))
      put(TokenKind::name,
          static_cast<std::size_t>(std::ranges::find_if_not(rest(), is_word) - rest().begin()));
    else if (c == '\'' || c == '"')
      put(TokenKind::string, string_size());
    else
      put(TokenKind::op, operator_size(open));
  }

  void number() {
    static const std::regex kDecimal(R"(\d+(_\d+)*(\.\d+(_\d+)*)?([eE][+-]?\d+(_\d+)*)?)");
    static const std::regex kInteger(
        R"(0[bB](_?[01])+|0[oO](_?[0-7])+|0[xX](_?[\da-fA-F])+|[1-9](_?\d)*|0(_?0)*)");
    constexpr std::size_t kMostDigits = 1000;  // the library recurses for each
    const std::string_view text = rest().substr(0, kMostDigits);
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::cmatch match;
    const auto begins = [&](const std::regex& pattern) {
      return std::regex_search(text.data(), text.data() + text.size(), match, pattern,
                               std::regex_constants::match_continuous);
    };
    const bool real = begins(kDecimal) && (match[2].matched || match[4].matched) && !after_dot;
    if (!real) begins(kInteger);
    put(real ? TokenKind::real : TokenKind::integer, static_cast<std::size_t>(match.length()));
  }

  std::size_t string_size() const {
    for (std::size_t i = 1; i < rest().size(); ++i) {
      if (rest()[i] == '\\')
        ++i;
      else if (rest()[i] == rest()[0])
        return i + 1;
    }
    refuse("a string has no end");
  }

  std::size_t operator_size(std::string& open) {
    static constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view pair : kPairs)
      if (here(pair)) return 2;
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == npos)
      refuse("an unexpected character '{}'", rest().substr(0, character_size(source_, at_)));
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) refuse("an unexpected '{}'", c);
      if (open.back() != c) refuse("an unexpected '{}' where '{}' is expected", c, open.back());
      open.pop_back();
    }
    return 1;
  }

  std::string_view source_;
  int& line_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;
};

/// The character of `digits` hexadecimal digits at byte `at`, or of at most so many octal ones.
void append_code(std::string& result, std::string_view text, std::size_t& at, std::size_t digits,
                 int base) {
  std::uint32_t value = 0;
  const std::string_view code = text.substr(at, digits);
  const char* const end = std::from_chars(code.data(), code.data() + code.size(), value, base).ptr;
  if (base == 16 && end != code.data() + digits)
    refuse("a string escape needs {} hexadecimal digits", digits);
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
    refuse("a string escape is not a character: {:x}", value);
  append_utf8(result, value);
  at += static_cast<std::size_t>(end - code.data());
}

}  // namespace

std::string normalized_source(std::string_view source) {
  std::string result =
      replace(replace(source, "\r\n", "\n", -1, source.size()), "\r", "\n", -1, source.size());
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

std::vector<Token> tokenize(std::string_view source, int& line) {
  return Lexer(source, line).run();
}

std::string string_of(std::string_view token) {
  const std::string_view text = token.substr(1, token.size() - 2);
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeant = "\a\b\f\n\r\t\v\\'\"";
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      result += text[i++];
      continue;
    }
    const char c = text[++i];
    if (const std::size_t known = kLetters.find(c); known != npos) {
      result += kMeant[known];
      ++i;
    } else if (c == '\n') {
      ++i;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code(result, text, ++i, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c >= '0' && c <= '7') {
      append_code(result, text, i, 3, 8);
    } else if (c == 'N') {
      refuse("a string escape \\N is not supported");
    } else {
      result += '\\';
    }
  }
  return result;
}

}  // namespace focus::jinja
