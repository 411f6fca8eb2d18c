#include "data/text/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/pack.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Paths = std::vector<std::filesystem::path>;

std::string xz(const std::string& text) { return packed(text, ARCHIVE_FILTER_XZ); }

TEST(ReadTextFile, PlainAndPacked) {
  const TempFolder folder;
  std::string text = "line\r\n\0zero and \xC3\xA9";
  for (int i = 0; i < 18; ++i) text += text;  // several buffers long
  write_text(folder / "a.txt", text);
  write_text(folder / "b", xz(text));
  write_text(folder / "c", xz("one, ") + xz("two"));
  EXPECT_EQ(read_text_file(folder / "a.txt"), text);
  EXPECT_EQ(read_text_file(folder / "b"), text);
  EXPECT_EQ(read_text_file(folder / "c"), "one, two");
}

TEST(ReadTextFile, SaysWhatIsWrong) {
  const TempFolder folder;
  const auto error = [&](const std::string& bytes) {
    write_text(folder / "x", bytes);
    return error_of([&] { read_text_file(folder / "x"); });
  };
  std::string text(1000, 'a');
  text += "end";
  const std::string good = xz(text);
  std::string damaged = good;
  damaged[30] = static_cast<char>(damaged[30] ^ 0x40);
  EXPECT_THAT(error(good.substr(0, good.size() - 20)), HasSubstr("truncated"));
  EXPECT_THAT(error(damaged), HasSubstr("damaged"));
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error(xz("")), HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { read_text_file(folder / "none"); }), HasSubstr("none"));
  EXPECT_THAT(error_of([&] { read_text_file(folder.path()); }), HasSubstr("folder"));
}

TEST(SplitDocuments, DropsBlankParts) {
  EXPECT_THAT(split_documents("a b|c\n||\n|d", "|"), ElementsAre("a b", "c\n", "d"));
  EXPECT_THAT(split_documents("one<|endoftext|>\ntwo<|endoftext|>\n", "<|endoftext|>"),
              ElementsAre("one", "\ntwo"));
  EXPECT_THAT(split_documents("no separator", "|"), ElementsAre("no separator"));
  EXPECT_THAT(split_documents("a|b", ""), ElementsAre("a|b"));
  EXPECT_TRUE(split_documents("| |\n", "|").empty());
}

TEST(ExpandTextPaths, FilesAndFoldersInOrder) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "books");
  std::filesystem::create_directory(folder / "books" / "more.txt");
  for (const char* name : {"c.txt", "a.txt.xz", "b.txt", "notes.md"}) {
    write_text(folder / "books" / name, "x");
  }
  write_text(folder / "single.md", "x");
  const Paths paths = {folder / "single.md", folder / "books"};
  EXPECT_THAT(expand_text_paths(paths),
              ElementsAre(paths[0], paths[1] / "a.txt.xz", paths[1] / "b.txt", paths[1] / "c.txt"));
  EXPECT_THAT(error_of([&] { expand_text_paths(Paths{folder / "none"}); }), HasSubstr("none"));
  EXPECT_THAT(error_of([&] { expand_text_paths(Paths{folder.path()}); }), HasSubstr("*.txt"));
}

}  // namespace
}  // namespace focus
