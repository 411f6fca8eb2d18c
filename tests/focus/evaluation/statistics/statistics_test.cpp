#include "focus/evaluation/statistics/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace focus {
namespace {

using C = TokenCategory;

const std::vector<std::int32_t> kIds = {7, 7, 9, 9, 7, 4, 4, 5};

/// Eight tokens in three groups, the last one empty.
GroupingDetails eight_tokens(std::int64_t min_count = 1, std::size_t most = 2) {
  return describe_grouping(
      {.groups = 3,
       .group_of_token = {0, 0, 0, 1, 0, 1, 1, 0},
       .confidence = {1, 1, 0.5F, 0.75F, 0.5F, 0.25F, 0.5F, 0.5F}},
      kIds,
      {.vocabulary = {{4, "four"}, {5, "five"}, {7, "seven"}, {9, "nine"}},
       .categories = {C::punctuation, C::punctuation, C::word, C::determiner, C::punctuation,
                      C::determiner, C::connective, C::digits}},
      min_count, most);
}

TEST(GroupStatistics, SizesAndConfidence) {
  const GroupingDetails details = eight_tokens();
  ASSERT_EQ(details.groups.size(), 3u);
  for (const auto& [group, size, confidence] :
       {std::tuple(0u, 5, 3.5 / 5), std::tuple(1u, 3, 1.5 / 3), std::tuple(2u, 0, 0.0)}) {
    EXPECT_EQ(details.groups[group].size, size);
    EXPECT_NEAR(details.groups[group].confidence, confidence, 1e-12);
  }
  EXPECT_EQ(details.largest_group, 5 / 8.0);
  EXPECT_EQ(details.smallest_group, 0);
  EXPECT_NEAR(details.confidence, 5 / 8.0, 1e-12);
  EXPECT_NEAR(details.size_entropy,
              (5 * std::log(8.0 / 5) + 3 * std::log(8.0 / 3)) / 8 / std::log(3.0), 1e-12);
  EXPECT_THROW(
      describe_grouping({.groups = 1, .group_of_token = {0}, .confidence = {1}}, kIds, {}, 1, 1),
      std::invalid_argument);
}

TEST(GroupStatistics, TypicalTokens) {
  const auto groups = eight_tokens().groups;
  // Group 0 has 7 three times (mean confidence 5/6), 9 and 5 once each (1/2).
  ASSERT_EQ(groups[0].by_confidence.size(), 2u);
  EXPECT_EQ(groups[0].by_confidence[0].id, 7);
  EXPECT_EQ(groups[0].by_confidence[0].text, "seven");
  EXPECT_EQ(groups[0].by_confidence[0].count, 3);
  EXPECT_NEAR(groups[0].by_confidence[0].confidence, 2.5 / 3, 1e-12);
  EXPECT_EQ(groups[0].by_confidence[1].id, 5);  // of equals the lower id
  // 3/5 of the group over 3/8 of all; 5 has the same lift, 1/5 over 1/8, but is rarer.
  EXPECT_EQ(groups[0].by_lift[0].id, 7);
  EXPECT_NEAR(groups[0].by_lift[0].lift, (3.0 / 5) / (3.0 / 8), 1e-12);
  EXPECT_EQ(groups[0].by_lift[1].id, 5);
  // Group 1: 4 is all its own, 9 half.
  EXPECT_EQ(groups[1].by_lift[0].id, 4);
  EXPECT_NEAR(groups[1].by_lift[1].lift, (1.0 / 3) / (2.0 / 8), 1e-12);
  EXPECT_EQ(groups[1].by_confidence[0].id, 9);
  EXPECT_TRUE(groups[2].by_lift.empty());
  // Rare ones are left out.
  EXPECT_EQ(eight_tokens(2, 9).groups[0].by_lift.size(), 1u);
}

TEST(GroupStatistics, Purity) {
  const GroupingDetails details = eight_tokens();
  EXPECT_EQ(details.groups[0].category, C::punctuation);
  EXPECT_EQ(details.groups[1].category, C::determiner);
  const auto share = [&](std::size_t group, C category) {
    return details.groups[group].categories[static_cast<std::size_t>(category)];
  };
  EXPECT_NEAR(share(0, C::punctuation), 3.0 / 5, 1e-12);
  EXPECT_NEAR(share(1, C::connective), 1.0 / 3, 1e-12);
  EXPECT_NEAR(details.purity.categories, (3 + 2) / 8.0, 1e-12);
  EXPECT_NEAR(details.purity.categories_base, 3 / 8.0, 1e-12);
  // Words begin at 1 of the 5 and at all 3: 4 + 3 are as their group, 4 as all.
  EXPECT_NEAR(details.purity.word_beginnings, 7 / 8.0, 1e-12);
  EXPECT_NEAR(details.purity.word_beginnings_base, 4 / 8.0, 1e-12);
  EXPECT_GT(details.purity.information, 0.3);
  EXPECT_LT(details.purity.information, 0.9);
}

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
