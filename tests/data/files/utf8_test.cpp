#include "data/files/utf8.h"

#include <gtest/gtest.h>

namespace focus {
namespace {

TEST(Utf8, ReplacesEachMaximalPartOnce) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + mark + "z");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82z"), mark + "z");             // cut short
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x92"), mark);                // cut short by the end
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), mark + mark);             // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), mark + mark + mark);  // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80").size(), 4 * mark.size());  // too large
  EXPECT_EQ(replace_invalid_utf8("\xC3\xA9\xF0\x9F\x98\x80"), "\xC3\xA9\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace focus
