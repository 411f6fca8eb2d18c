#include "data/files/file_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files/utf8.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;

TEST(FileKind, TextsThatBeginAsOtherFilesDoAreText) {
  for (const char* text :
       {"PAR1 is a line", "GGUF is a format of files", "BZh", "%PDF-1.7 begins", "", "a",
        "\xEF\xBB\xBF"
        "a mark",
        "Rar!"})
    EXPECT_NO_THROW(require_text(text, "a.txt")) << text;
}

TEST(FileKind, PointersOfGitLfs) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d\n";
  EXPECT_THAT(error_of([&] { refuse_lfs_pointer(pointer, "a/model.safetensors"); }),
              HasSubstr("a/model.safetensors: is a Git LFS pointer"));
  EXPECT_NO_THROW(refuse_lfs_pointer("version 1", "a"));
}

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
