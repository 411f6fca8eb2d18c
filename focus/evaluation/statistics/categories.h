#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/base/types.h"
#include "data/tokenizers/tokenizer.h"

// What kind of thing a token is in English text, by its letters only: closed lists of
// function words, no model. Groups are held against these.
namespace focus {

enum class TokenCategory : std::uint8_t {
  special,       // marks something, such as the start of a document
  white_space,   // blanks and line breaks alone
  punctuation,   // signs without a letter or digit
  digits,        // digits without a letter
  determiner,    // a whole word of the closed list: the, every, my
  pronoun,       // I, they, who
  auxiliary,     // is, had, would, not
  preposition,   // of, through
  connective,    // and, because, when
  capitalised,   // another word or its beginning that starts with a capital
  word,          // any other word or its beginning
  continuation,  // continues a word
};
constexpr auto enum_names(TokenCategory) {
  return std::array<std::string_view, 12>{
      "special",   "white space", "punctuation", "digits",      "determiner", "pronoun",
      "auxiliary", "preposition", "connective",  "capitalised", "word",       "continuation"};
}
constexpr Index kNumCategories = enum_names(TokenCategory{}).size();
inline std::string_view name_of(TokenCategory c) {
  return enum_names(c)[static_cast<std::size_t>(c)];
}

/// Category of a token between its neighbours' texts; each is well-formed UTF-8 with leading blank,
/// empty where there is no neighbour. A function word is one only where the next token does not
/// continue it.
TokenCategory category_of(std::string_view before, std::string_view token, std::string_view after);

/// The categories of consecutive tokens; where `special` says so that is one.
std::vector<TokenCategory> categorise(std::span<const std::string> texts,
                                      const std::vector<bool>& special);

/// True where a word begins with the token: its category is one of those of words but continuation.
bool begins_word(TokenCategory category);
/// The text of an id after another word, its leading blank included, ill-formed bytes
/// as U+FFFD.
std::string token_text(const Tokenizer& tokenizer, std::int32_t id);

}  // namespace focus
