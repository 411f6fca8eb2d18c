#include "data/files/file_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/notices.h"
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

}  // namespace
}  // namespace focus
