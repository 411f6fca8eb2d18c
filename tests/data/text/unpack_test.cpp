#include "data/text/unpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "data/text/text.h"
#include "tests/support/notices.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;

std::string gzipped(const std::string& text) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<unsigned>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string long_text() {
  std::string text = "Once upon a time, ";
  for (int i = 0; i < 17; ++i) text += text + std::to_string(i);  // several buffers long
  return text;
}

class Unpack : public testing::TestWithParam<std::string> {
 protected:
  static std::string pack(const std::string& text) {
    return GetParam() == "gzip" ? gzipped(text) : zstd(text);
  }
};

TEST_P(Unpack, GivesWhatWasPacked) {
  for (const std::string& text : {std::string("a"), std::string("a\0b", 3), long_text()}) {
    const std::string packed = pack(text);
    EXPECT_EQ(packing_of(packed), GetParam());
    EXPECT_EQ(unpacked(packed, "x"), text);
  }
  EXPECT_EQ(unpacked(pack("one, ") + pack("two"), "x"), "one, two");
}

TEST_P(Unpack, RefusesWhatIsDamaged) {
  const std::string good = pack(long_text());
  const auto error = [](const std::string& bytes) {
    return error_of([&] { unpacked(bytes, "a.txt"); });
  };
  for (const std::size_t kept : {good.size() - 1, good.size() / 2, std::size_t{5}})
    EXPECT_THAT(error(good.substr(0, kept)), HasSubstr("cannot unpack a.txt: it is truncated"));
  std::string damaged = good;
  for (std::size_t i = good.size() / 2; i < good.size() / 2 + 8; ++i) damaged[i] = '\x5A';
  EXPECT_THAT(error(damaged), HasSubstr("cannot unpack a.txt: its contents are damaged"));
  EXPECT_THAT(error(good + "what is behind it"), HasSubstr("cannot unpack a.txt"));
}

INSTANTIATE_TEST_SUITE_P(Formats, Unpack, testing::Values("gzip", "zstd"));

TEST(Unpack, LetsOthersBe) {
  for (const std::string text : {"", "a", "BZh", "\x1F\x8B", "\x28\xB5"}) {
    EXPECT_EQ(packing_of(text), "");
    EXPECT_EQ(unpacked(text, "x"), text);
  }
}

TEST(ReadDocumentFile, SaysWhatWasUnpacked) {
  const TempFolder folder;
  write_text(folder / "a.txt.gz", gzipped("Once upon"));
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
  // Strays in a text, and a text of UTF-8 with some, are told of.
  const Notices notices;
  EXPECT_EQ(error("caf\xE9 " + std::string(40, 'a')), "");
  EXPECT_EQ(error(latin1 + "\xC3\xA9"), "");
  EXPECT_EQ(error(std::string(20000, 'a') + latin1), "");
  EXPECT_THAT(notices.text(), HasSubstr("not UTF-8 in 15 places"));
}

TEST(ExpandTextPaths, APackedNameIsOneOfText) {
  const TempFolder folder;
  for (const char* name : {"a.txt", "b.jsonl", "c.txt.gz", "d.jsonl.zst", "e.gz", "f.json", "g"})
    write_text(folder / name, "x");
  const std::vector<std::filesystem::path> paths = {folder.path()};
  EXPECT_EQ(expand_text_paths(paths).size(), 4u);
}

}  // namespace
}  // namespace focus
