#include "data/tokenizers/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "data/files/utf8.h"

namespace focus {
namespace {

bool is_word_character(char32_t c) {
  const auto code_point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(code_point, UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(code_point, UCHAR_JOIN_CONTROL) != 0 ||
         (U_GET_GC_MASK(code_point) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool is_blank(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0; }

/// Where the last character of a text that is not empty begins.
std::size_t last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  return begin;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const std::string_view before = text.substr(0, begin);
  const std::string_view after = text.substr(end);
  return (before.empty() ||
          !is_word_character(utf8_code_point(before.substr(last_character(before))))) &&
         (after.empty() || !is_word_character(utf8_code_point(after)));
}

std::size_t skip_blanks_back(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    const std::size_t begin = last_character(text.substr(0, end));
    if (!is_blank(utf8_code_point(text.substr(begin)))) break;
    end = begin;
  }
  return std::max(end, limit);
}

std::size_t skip_blanks(std::string_view text, std::size_t begin) {
  while (begin < text.size() && is_blank(utf8_code_point(text.substr(begin))))
    begin += utf8_char_size(text[begin]);
  return begin;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : empty_(tokens.empty()) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (AddedToken& token : tokens)
    by_first_byte_[static_cast<unsigned char>(token.content.at(0))].push_back(std::move(token));
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t position) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[position])])
    if (text.substr(position).starts_with(token.content)) return &token;
  return nullptr;
}

void AddedTokenFinder::split(std::string_view text,
                             const std::function<void(std::string_view)>& on_text,
                             const std::function<void(std::int32_t)>& on_token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; !empty_ && at < text.size();) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + token->content.size();
    at = end;
    // A token whose blanks were taken by the one before it still counts.
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->lstrip) begin = skip_blanks_back(text, begin, done);
    if (token->rstrip) end = skip_blanks(text, end);
    if (begin > done) on_text(text.substr(done, begin - done));
    on_token(token->id);
    done = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace focus
