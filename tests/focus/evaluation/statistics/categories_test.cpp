#include <gtest/gtest.h>

#include "focus/evaluation/statistics/statistics.h"

namespace focus {
namespace {

using C = TokenCategory;

TEST(Categories, OfATokenBetweenItsNeighbours) {
  struct Case {
    const char *before, *token, *after;
    C category;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", " the", " cat", C::determiner},
           {"", "The", " cat", C::determiner},
           {" a", " the", "n", C::word},  // "then"
           {" Al", "may", "er", C::continuation},
           {",", " Al", "may", C::capitalised},
           {" the", " cat", ".", C::word},
           {" He", " is", " here", C::auxiliary},
           {"\n", "He", " is", C::pronoun},
           {" go", " into", " it", C::preposition},
           {",", " and", " so", C::connective},
           {" cat", ",", " and", C::punctuation},
           {" cat", "\xE2\x80\x94", "and", C::punctuation},  // an em dash
           {" in", " 1895", ".", C::digits},
           {"18", "95", ".", C::digits},
           {".", "\n\n", "He", C::white_space},
           {" caf", "\xC3\xA9", " is", C::continuation},  // a letter beyond ASCII
           {" Almayer", "'s", " Folly", C::continuation},
           {" Almayer", "\xE2\x80\x99s", " Folly", C::continuation},
           {" \"", "'Twas", " brillig", C::word},
           {" the", "r", "e", C::continuation},
       })
    EXPECT_EQ(name_of(category_of(c.before, c.token, c.after)), name_of(c.category))
        << "\"" << c.before << "|" << c.token << "|" << c.after << "\"";
}

TEST(Categories, OfARowOfTokens) {
  const std::vector<std::string> texts = {"<|endoftext|>", "The", " Al", "may", "er", " is", "."};
  const std::vector<bool> special = {true, false, false, false, false, false, false};
  const std::vector<C> categories = categorise(texts, special);
  EXPECT_EQ(categories, (std::vector<C>{C::special, C::determiner, C::capitalised, C::continuation,
                                        C::continuation, C::auxiliary, C::punctuation}));
  // A word before a special token does not continue after it.
  EXPECT_EQ(categorise(std::vector<std::string>{"to", "<s>", "day"}, {false, true, false}),
            (std::vector<C>{C::preposition, C::special, C::word}));
}

TEST(Categories, BytesAreTokensToo) {
  std::vector<std::string> texts;
  for (const char c : std::string("I am")) texts.emplace_back(1, c);
  EXPECT_EQ(categorise(texts, std::vector<bool>(texts.size(), false)),
            (std::vector<C>{C::pronoun, C::white_space, C::word, C::continuation}));
}

TEST(Categories, WordsBegin) {
  EXPECT_TRUE(begins_word(C::determiner) && begins_word(C::capitalised) && begins_word(C::word));
  EXPECT_FALSE(begins_word(C::continuation) || begins_word(C::digits) || begins_word(C::special));
}

TEST(Categories, TextOfATokenIsWellFormed) {
  const auto bytes = load_tokenizer("bytes");
  EXPECT_EQ(token_text(*bytes, ' '), " ");
  EXPECT_EQ(token_text(*bytes, 'x'), "x");
  EXPECT_EQ(token_text(*bytes, 0xC3), "\xEF\xBF\xBD");
  EXPECT_EQ(token_text(*bytes, 256), "");  // a model may have more ids than its tokenizer
}

}  // namespace
}  // namespace focus
