#include "data/tokenizers/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <map>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"

namespace focus {
namespace {

constexpr std::size_t kMaxJitStack = 16 << 20;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

/// Writes an Oniguruma expression in PCRE2's terms. PCRE2's own \s has U+180E and lacks U+001C, its
/// \w lacks marks: both are spelled out as Unicode properties.
class Translator {
 public:
  Translator(const std::string& expression, const std::string& where)
      : text_(expression), where_(where) {}

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else if (c == '[') {
        open_class();
      } else if (starts_with("(?")) {
        group();
      } else {
        refuse_if(starts_with("{,"), "{,n}");
        refuse_if(starts_with("(*"), "(*");
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  bool starts_with(std::string_view prefix) const {
    return std::string_view(text_).substr(at_).starts_with(prefix);
  }

  void copy(std::size_t count) {
    out_ += text_.substr(at_, count);
    at_ += count;
  }

  void refuse_if(bool condition, std::string_view what) const {
    if (condition)
      fail("{}: the regular expression uses {}, which is not supported", where_, shown(what));
  }

  void escape() {
    refuse_if(at_ + 1 >= text_.size(), "a lone \\ at its end");
    const char c = text_[at_ + 1];
    refuse_if(c == 'W' && in_class_, "\\W inside [...]");
    refuse_if(c == 'u' && at_ + 6 > text_.size(), "a \\u without four digits");
    // These mean other things in the two libraries, or look at more than the match.
    refuse_if(std::string_view("bBhHRXKGNOyYCQE").find(c) != std::string_view::npos,
              fmt::format("\\{}", c));
    const std::string word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
    const std::map<char, std::string> translated = {
        {'s', "\\p{White_Space}"},
        {'S', "\\P{White_Space}"},
        {'d', "\\p{Nd}"},
        {'D', "\\P{Nd}"},
        {'w', in_class_ ? word : fmt::format("[{}]", word)},
        {'W', fmt::format("[^{}]", word)},
        {'u', fmt::format("\\x{{{}}}", text_.substr(at_ + 2, 4))}};
    const auto found = translated.find(c);
    if (found == translated.end()) return copy(2);
    out_ += found->second;
    at_ += c == 'u' ? 6 : 2;
  }

  void open_class() {
    in_class_ = true;
    copy(starts_with("[^") ? 2 : 1);
    if (starts_with("]")) {
      out_ += "\\]";
      ++at_;
    }
  }

  void class_character(char c) {
    refuse_if(c == '[', "a [ inside [...]");
    refuse_if(starts_with("&&"), "&& inside [...]");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void group() {
    for (const std::string_view known :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:", "(?-i)"})
      if (starts_with(known)) return copy(known.size());
    refuse_if(true, fmt::format("the group {}...", text_.substr(at_, 4)));
  }

  const std::string& text_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

template <auto Free>
struct Deleter {
  void operator()(auto* pointer) const { Free(pointer); }
};
template <class T, auto Free>
using Handle = std::unique_ptr<T, Deleter<Free>>;

}  // namespace

struct Pattern::Compiled {
  Handle<pcre2_code, pcre2_code_free> code;
  Handle<pcre2_match_data, pcre2_match_data_free> match;
  Handle<pcre2_match_context, pcre2_match_context_free> context;
  Handle<pcre2_jit_stack, pcre2_jit_stack_free> stack;
  std::string where;
};

Pattern Pattern::regex(const std::string& expression, const std::string& where) {
  if (expression.empty()) fail("{}: an empty pattern matches nothing", where);
  const std::string text = Translator(expression, where).run();
  auto compiled = std::make_shared<Compiled>();
  compiled->where = where;
  const Handle<pcre2_compile_context, pcre2_compile_context_free> options(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(options.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset,
                                     options.get()));
  if (!compiled->code)
    fail("{}: the regular expression '{}' is invalid at byte {}: {}", where, shown(expression),
         offset, pcre2_message(error));
  // Where the system forbids writable code, PCRE2's interpreter does the same more slowly.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  compiled->match.reset(pcre2_match_data_create(1, nullptr));
  compiled->context.reset(pcre2_match_context_create(nullptr));
  compiled->stack.reset(pcre2_jit_stack_create(32 << 10, kMaxJitStack, nullptr));
  pcre2_jit_stack_assign(compiled->context.get(), nullptr, compiled->stack.get());
  Pattern pattern;
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

Pattern Pattern::literal(const std::string& text, const std::string& where) {
  if (text.empty()) fail("{}: an empty pattern matches nothing", where);
  Pattern pattern;
  pattern.literal_ = text;
  return pattern;
}

std::optional<Pattern::Match> Pattern::find(std::string_view text, std::size_t from,
                                            std::size_t last) const {
  if (!literal_.empty()) {
    const std::size_t begin = text.find(literal_, from);
    if (begin == std::string_view::npos) return std::nullopt;
    return Match{begin, begin + literal_.size()};
  }
  // The checks PCRE2 would make of the whole text at every call would make this quadratic.
  const int count =
      pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                  from, PCRE2_NO_UTF_CHECK, compiled_->match.get(), compiled_->context.get());
  if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (count < 0)
    fail("{}: the regular expression failed at byte {} of the text: {}", compiled_->where, from,
         pcre2_message(count));
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(compiled_->match.get());
  if (offsets[1] > offsets[0] || offsets[0] != last) return Match{offsets[0], offsets[1]};
  if (last == text.size()) return std::nullopt;
  return find(text, last + utf8_char_size(text[last]), last);
}

std::string Pattern::replace_all(std::string_view text, const std::string& content) const {
  std::string result;
  result.reserve(text.size());
  for_each_part(text, [&](std::string_view part, bool is_match) {
    result += is_match ? std::string_view(content) : part;
  });
  return result;
}

}  // namespace focus
