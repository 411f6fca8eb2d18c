#include "data/text/text.h"

#include <gmock/gmock.h>

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
  const std::string text("line\r\n\0zero and \xC3\xA9", 18);
  const auto read = [&](const std::string& bytes) {
    write_text(folder / "x", bytes);
    return read_text_file(folder / "x");
  };
  EXPECT_EQ(read(text), text);
  EXPECT_EQ(read(xz(text)), text);
  const auto error = [&](const std::string& bytes) { return error_of([&] { read(bytes); }); };
  EXPECT_THAT(error(xz(text).substr(0, 40)), HasSubstr("truncated"));
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
  for (const char* name :
       {"c.txt", "a.txt.xz", "b.txt", "d.jsonl", "e.jsonl.zst", "notes.md", "f.gz", "g.json", "h"})
    write_text(folder / "books" / name, "x");
  write_text(folder / "single.md", "x");
  const Paths paths = {folder / "single.md", folder / "books"};
  EXPECT_THAT(expand_text_paths(paths),
              ElementsAre(paths[0], paths[1] / "a.txt.xz", paths[1] / "b.txt", paths[1] / "c.txt",
                          paths[1] / "d.jsonl", paths[1] / "e.jsonl.zst"));
  EXPECT_THAT(error_of([&] { expand_text_paths(Paths{folder / "none"}); }), HasSubstr("none"));
  EXPECT_THAT(error_of([&] { expand_text_paths(Paths{folder.path()}); }), HasSubstr("*.txt"));
}

}  // namespace
}  // namespace focus
