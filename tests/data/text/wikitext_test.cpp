#include "data/text/wikitext.h"

#include <gtest/gtest.h>

namespace focus {
namespace {

TEST(Wikitext, WordsAreWhatStandsBetweenWhiteSpace) {
  EXPECT_EQ(count_words(""), 0);
  EXPECT_EQ(count_words(" \n"), 0);
  EXPECT_EQ(count_words("one  two\nthree"), 3);
  EXPECT_EQ(count_wikitext_words(" \n = A title = \n \n One , two \n"), 4 + 4 + 3);
}

// Answers of the lm-evaluation-harness's wikitext_detokenizer.
TEST(Wikitext, TokensAreWrittenAsTheyWere) {
  EXPECT_EQ(wikitext_detokenized("a 4 @,@ 000 @-@ man unit of 2 @.@ 5 % , then"),
            "a 4,000-man unit of 2.5 %, then");
  EXPECT_EQ(wikitext_detokenized("the role of \" Craig \" in \" Teddy 's Story \" ."),
            "the role of \"Craig\" in \"Teddy's Story\" .");
  EXPECT_EQ(wikitext_detokenized("( born 1932 ) [ a ] { b } done"), "(born 1932) [a] {b} done");
  EXPECT_EQ(wikitext_detokenized(" = = = Part = = = \n the boys ' N \u00B0 C \n"),
            " === Part ===\nthe boys' N\u00B0C\n");
  EXPECT_EQ(wikitext_detokenized("an open ( bracket"), "an open ( bracket");
}

TEST(Wikitext, AQuotationMarkThatIsLeftOverEndsWithItsArticle) {
  const std::string article = " = A title = \n one \" two \" three \n";
  const std::string open = " = Another = \n four \" five \n";
  EXPECT_EQ(wikitext_detokenized(open + article),
            wikitext_detokenized(open) + wikitext_detokenized(article));
  EXPECT_NE(wikitext_detokenized(open + article).find("one \"two\" three"), std::string::npos);
}

}  // namespace
}  // namespace focus
