
#include <gmock/gmock.h>

#include "data/text/text.h"
#include "tests/support/notices.h"
#include "tests/support/pack.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;

std::string long_text() {
  std::string text = "Once upon a time, ";
  for (int i = 0; i < 17; ++i) text += text + std::to_string(i);  // several buffers long
  return text;
}

const std::map<std::string, int> kFilters = {{"gzip", ARCHIVE_FILTER_GZIP},
                                             {"zstd", ARCHIVE_FILTER_ZSTD},
                                             {"xz", ARCHIVE_FILTER_XZ},
                                             {"bzip2", ARCHIVE_FILTER_BZIP2}};

class Unpack : public testing::TestWithParam<std::string> {
 protected:
  static std::string pack(const std::string& text) { return packed(text, kFilters.at(GetParam())); }
};

TEST_P(Unpack, GivesWhatWasPacked) {
  for (const std::string& text : {std::string("a"), std::string("a\0b", 3), long_text()}) {
    EXPECT_EQ(packing_of(pack(text)), GetParam());
    EXPECT_EQ(unpacked(pack(text), "x"), text);
  }
  EXPECT_EQ(unpacked(pack("one, ") + pack("two"), "x"), "one, two");
  EXPECT_EQ(unpacked(pack(pack("twice")), "x"), pack("twice"));
}

TEST_P(Unpack, RefusesWhatIsDamaged) {
  const std::string good = pack(long_text());
  const auto error = [](const std::string& bytes) {
    return error_of([&] { unpacked(bytes, "a.txt"); });
  };
  for (const std::size_t kept :
       {good.size() - 1, good.size() / 2, std::size_t{5}, std::size_t{12}}) {
    const std::string cut = good.substr(0, kept);
    if (packing_of(cut).empty()) continue;  // 5 bytes do not show xz and bzip2
    EXPECT_THAT(error(cut), HasSubstr("cannot unpack a.txt: it is truncated"));
  }
  std::string damaged = good;
  for (std::size_t i = good.size() / 2; i < good.size() / 2 + 8; ++i) damaged[i] = '\x5A';
  EXPECT_THAT(error(damaged), HasSubstr("cannot unpack a.txt: its contents are damaged"));
  EXPECT_THAT(error(good + "what is behind it"), HasSubstr("cannot unpack a.txt"));
}

INSTANTIATE_TEST_SUITE_P(Formats, Unpack, testing::Values("gzip", "zstd", "xz", "bzip2"));

TEST(Unpack, LetsOthersBe) {
  for (const std::string text : {"", "a", "BZh", "\x1F\x8B", "\x28\xB5"}) {
    EXPECT_EQ(packing_of(text), "");
    EXPECT_EQ(unpacked(text, "x"), text);
  }
}

TEST(ReadDocumentFile, SaysWhatWasUnpacked) {
  const TempFolder folder;
  write_text(folder / "a.txt.gz", packed("Once upon", ARCHIVE_FILTER_GZIP));
  const Notices notices;
  EXPECT_EQ(read_document_file(folder / "a.txt.gz"), "Once upon");
  EXPECT_THAT(notices.text(), HasSubstr("a.txt.gz: gzip, unpacked to 9 bytes of UTF-8 text"));
}

TEST(ReadDocumentFile, TakesTheMarkOffAndKeepsLineEnds) {
  const TempFolder folder;
  write_text(folder / "a.txt", "\xEF\xBB\xBFone\r\ntwo\r\n");
  const Notices notices;
  EXPECT_EQ(read_document_file(folder / "a.txt"), "one\r\ntwo\r\n");
  EXPECT_THAT(notices.text(),
              HasSubstr("a.txt: 2 lines end in CRLF, which is read as part of the text"));
  // Between the lines of JSONL they mean nothing.
  write_text(folder / "b.jsonl", "{\"text\": \"a\"}\r\n");
  const std::string before = notices.text();
  read_document_file(folder / "b.jsonl");
  EXPECT_EQ(notices.text(), before);
}

TEST(ReadDocumentFile, OtherEncodingsAreRefused) {
  const TempFolder folder;
  const auto error = [&](const std::string& text) {
    write_text(folder / "x.txt", text);
    return error_of([&] { read_document_file(folder / "x.txt"); });
  };
  std::string latin1;
  for (int i = 0; i < 5; ++i) latin1 += "El ni\xF1o comi\xF3 en el caf\xE9. ";
  EXPECT_THAT(error(latin1), HasSubstr("expected UTF-8 text, but 15 of its bytes are letters of "
                                       "another encoding, the first at byte 5"));
  // Strays in a text, and a text of UTF-8 with some, are reported.
  const Notices notices;
  EXPECT_EQ(error("caf\xE9 " + std::string(40, 'a')), "");
  EXPECT_EQ(error(latin1 + "\xC3\xA9"), "");
  EXPECT_EQ(error(std::string(20000, 'a') + latin1), "");
  EXPECT_THAT(notices.text(), HasSubstr("not UTF-8 in 15 places"));
}

}  // namespace
}  // namespace focus
