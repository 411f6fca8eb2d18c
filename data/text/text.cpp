#include "data/text/text.h"

#include <bzlib.h>
#include <lzma.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/files/file_kind.h"
#include "data/files/json_reader.h"
#include "data/files/read_file.h"
#include "data/text/examples.h"

namespace focus {
namespace {

constexpr std::string_view kXzMagic(
    "\xFD"
    "7zXZ\0",
    6);
constexpr std::size_t kReadChunk = 1 << 20;
constexpr std::string_view kBlanks = " \t\r\n\v\f";

/// What a text is unpacked to. Text gets a tenth of its size, a hundredth where it repeats itself:
/// what was packed to less is a bomb. Small ones are let be.
class Unpacked {
 public:
  Unpacked(std::size_t packed, const std::filesystem::path& path)
      : most_(std::min(std::max(kFree, kRatio * packed), memory_limit() / 4)), path_(path) {}

  void append(std::string_view part) {
    text_.append(part);
    if (text_.size() > most_)
      fail(
          "cannot unpack {}: more than {} bytes come out of it; is it text? Then unpack and split "
          "it yourself",
          path_.string(), most_);
  }
  std::string take() { return std::move(text_); }

 private:
  static constexpr std::size_t kFree = std::size_t{256} << 20, kRatio = 1000;
  std::size_t most_;
  const std::filesystem::path& path_;
  std::string text_;
};

constexpr std::uint64_t kMostOfLzma = std::uint64_t{1} << 30;  // xz -9 asks for 65 MB

std::string_view xz_error(lzma_ret result) {
  switch (result) {
    case LZMA_BUF_ERROR:
      return "it is cut short";
    case LZMA_MEM_ERROR:
      return "there is not enough memory";
    case LZMA_MEMLIMIT_ERROR:
      return "it asks for more than 1 GiB of memory";
    case LZMA_OPTIONS_ERROR:
      return "it uses options that this liblzma does not know";
    default:
      return "its contents are damaged";
  }
}

std::string unpack_xz(const std::string& packed, const std::filesystem::path& path) {
  lzma_stream stream = LZMA_STREAM_INIT;
  const std::unique_ptr<lzma_stream, decltype(&lzma_end)> end_stream(&stream, &lzma_end);
  lzma_ret result = lzma_stream_decoder(&stream, kMostOfLzma, LZMA_CONCATENATED);
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  Unpacked text(packed.size(), path);
  std::vector<char> part(kReadChunk);
  while (result == LZMA_OK) {
    stream.next_out = reinterpret_cast<std::uint8_t*>(part.data());
    stream.avail_out = part.size();
    result = lzma_code(&stream, LZMA_FINISH);
    text.append({part.data(), part.size() - stream.avail_out});
  }
  if (result != LZMA_STREAM_END) {
    fail("cannot unpack {}: {}; fetch the file again", path.string(), xz_error(result));
  }
  return text.take();
}

/// "BZh", a digit, and the first block's magic: a text too may begin with BZh.
bool is_bz2(std::string_view bytes) {
  return bytes.starts_with("BZh") && bytes.substr(4).starts_with("1AY&SY");
}

std::string unpack_bz2(const std::string& packed, const std::filesystem::path& path) {
  bz_stream stream = {};
  if (BZ2_bzDecompressInit(&stream, 0, 0) != BZ_OK)
    fail("cannot unpack {}: there is not enough memory", path.string());
  const std::unique_ptr<bz_stream, decltype(&BZ2_bzDecompressEnd)> end_stream(&stream,
                                                                              &BZ2_bzDecompressEnd);
  std::string_view rest = packed;
  Unpacked text(packed.size(), path);
  std::vector<char> part(kReadChunk);
  int result = BZ_OK;
  bool stuck = false;
  while (result == BZ_OK && !stuck) {
    if (stream.avail_in == 0) {  // it counts in 32 bits
      stream.next_in = const_cast<char*>(rest.data());
      stream.avail_in = static_cast<unsigned>(std::min(rest.size(), std::size_t{1} << 30));
      rest.remove_prefix(stream.avail_in);
    }
    stream.next_out = part.data();
    stream.avail_out = static_cast<unsigned>(part.size());
    result = BZ2_bzDecompress(&stream);
    const std::size_t got = part.size() - stream.avail_out;
    text.append({part.data(), got});
    stuck = stream.avail_in == 0 && rest.empty() && got == 0;
  }
  if (result != BZ_STREAM_END)
    fail("cannot unpack {}: {}; fetch the file again", path.string(),
         stuck ? "it is cut short" : "its contents are damaged");
  if (stream.avail_in > 0 || !rest.empty())
    fail("{}: several bz2 streams in one file are not supported; unpack it with bunzip2",
         path.string());
  return text.take();
}

bool is_text_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".txt") || name.ends_with(".txt.xz") || is_jsonl(path);
}

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  std::string text = read_file(path);
  if (text.starts_with(kXzMagic))
    text = unpack_xz(text, path);
  else if (is_bz2(text))
    text = unpack_bz2(text, path);
  if (text.empty()) fail("{}: the text file is empty; remove it from the list", path.string());
  require_text(text, path);
  return text;
}

std::string read_document_file(const std::filesystem::path& path) {
  std::string text = read_text_file(path);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  tell_invalid_utf8(text, path);
  if (!is_jsonl(path)) tell_crlf(text, path);
  return text;
}

std::string_view without_file_marks(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.ends_with('\n')) text.remove_suffix(text.ends_with("\r\n") ? 2 : 1);
  return text;
}

std::string read_prompt_file(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  tell_invalid_utf8(text, path);
  return std::string(without_file_marks(text));
}

std::vector<std::string_view> split_documents(std::string_view text, std::string_view separator) {
  if (separator.empty()) return {text};
  std::vector<std::string_view> documents;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view document = text.substr(begin, end - begin);
    if (document.find_first_not_of(kBlanks) != std::string_view::npos) {
      documents.push_back(document);
    }
    begin = end + separator.size();
  }
  return documents;
}

std::vector<std::filesystem::path> expand_text_paths(std::span<const std::filesystem::path> paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    if (!is_directory(path)) {
      if (!exists(path)) fail("{}: no such text file or folder", path.string());
      files.push_back(path);
      continue;
    }
    const std::size_t before = files.size();
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (!entry.is_directory() && is_text_name(entry.path())) files.push_back(entry.path());
    }
    if (files.size() == before) {
      fail("{}: the folder holds no *.txt, *.txt.xz or *.jsonl", path.string());
    }
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

std::vector<std::int32_t> parse_ids(const std::string& text) {
  constexpr std::string_view kBetween = " \t\r\n,";
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(kBetween, begin)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end) {
      fail("ids must be whole numbers with blanks between them, found {}",
           json_quoted(text.substr(begin, std::min<std::size_t>(end - begin, 40))));
    }
    ids.push_back(id);
    begin = end;
  }
  return ids;
}

}  // namespace focus
