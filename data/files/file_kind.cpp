#include "data/files/file_kind.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "data/files/notice.h"
#include "data/files/utf8.h"

namespace focus {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::string_view begin;
  std::string_view what, remedy;
  std::string_view at_end = {};  // what such a file ends with, where its beginning may be text
};

constexpr std::string_view kConvert = "convert it, for example with iconv -t UTF-8";
constexpr std::string_view kTakeText = "give its texts as .txt or .jsonl";

/// What users give in place of a text by mistake.
constexpr std::array kKinds = {
    Kind{"\xFF\xFE"sv, "UTF-16", kConvert},
    Kind{"\xFE\xFF"sv, "UTF-16", kConvert},
    Kind{"PK\x03\x04"sv, "a zip file", "unpack it first, for example with unzip"},
    Kind{"PAR1"sv, "a parquet file",
         "convert it: python3 -c \"import pandas, sys; "
         "pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient='records', lines=True)\" "
         "FILE.parquet FILE.jsonl",
         "PAR1"sv},
    Kind{"%PDF-1."sv, "a PDF file", kTakeText, "%%EOF"sv},
    Kind{"\x89HDF\r\n\x1A\n"sv, "an HDF5 file", kTakeText},
    Kind{"GGUF\x03\0\0\0"sv, "a GGUF file", kTakeText},
};

/// Every second byte of UTF-16 without a mark is 0 where its letters are those of English.
bool is_full_of_zeros(std::string_view bytes) {
  const std::string_view beginning = bytes.substr(0, 4096);
  return beginning.size() >= 16 &&
         4 * std::ranges::count(beginning, '\0') >= static_cast<std::ptrdiff_t>(beginning.size());
}

bool ends_with(std::string_view bytes, std::string_view end) {
  while (bytes.ends_with('\n') || bytes.ends_with('\r')) bytes.remove_suffix(1);
  return bytes.ends_with(end);
}

}  // namespace

void refuse_lfs_pointer(std::string_view bytes, const std::filesystem::path& path) {
  if (bytes.starts_with("version https://git-lfs.github.com/spec/"))
    fail(
        "{}: is a Git LFS pointer, not the file itself: run git lfs pull in its folder, or "
        "download the file",
        path.string());
}

void refuse_lfs_pointer(const std::filesystem::path& path) {
  constexpr std::size_t kMostOfPointer = 1024;
  std::string bytes(kMostOfPointer, '\0');
  bytes.resize(InputFile(path).read(std::as_writable_bytes(std::span(bytes))));
  refuse_lfs_pointer(bytes, path);
}

void require_text(std::string_view bytes, const std::filesystem::path& path) {
  for (const Kind& kind : kKinds)
    if (bytes.starts_with(kind.begin) && ends_with(bytes, kind.at_end))
      fail("{}: expected UTF-8 text, but it is {}; {}", path.string(), kind.what, kind.remedy);
  if (is_full_of_zeros(bytes))
    fail("{}: expected UTF-8 text, but it is full of zero bytes, as UTF-16 is; {}", path.string(),
         kConvert);
}

void tell_crlf(std::string_view text, const std::filesystem::path& path) {
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find("\r\n", at)) != text.npos; at += 2) ++lines;
  if (lines > 0)
    notice(
        "{}: {} line{} in CRLF, which is read as part of the text; convert it, for example with "
        "dos2unix, if the text that it is compared with has none",
        path.string(), lines, lines == 1 ? " ends" : "s end");
}

void tell_invalid_utf8(std::string_view text, const std::filesystem::path& path) {
  // Text in an encoding of one byte a letter, as Latin-1: none of its bytes beyond ASCII make up a
  // character of UTF-8, and they are too many for strays.
  constexpr std::size_t kFewest = 4, kOneIn = 1000;
  const InvalidUtf8 invalid = count_invalid_utf8(text);
  if (invalid.count >= kFewest && invalid.count * kOneIn >= text.size() &&
      invalid.beyond_ascii == 0)
    fail(
        "{}: expected UTF-8 text, but {} of its bytes are letters of another encoding, the first "
        "at byte {}; convert it, for example with iconv -f LATIN1 -t UTF-8",
        path.string(), invalid.count, invalid.first);
  if (invalid.count > 0)
    notice(
        "{}: not UTF-8 in {} place{}, the first at byte {}; a tokenizer reads U+FFFD there: "
        "convert the file, for example with iconv -f LATIN1 -t UTF-8",
        path.string(), invalid.count, invalid.count == 1 ? "" : "s", invalid.first);
}

}  // namespace focus
