#include "data/text/unpack.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"

namespace focus {
namespace {

constexpr std::string_view kXzMagic(
    "\xFD"
    "7zXZ\0",
    6);
constexpr std::string_view kGzipMagic("\x1F\x8B\x08", 3), kZstdMagic("\x28\xB5\x2F\xFD", 4);
constexpr std::size_t kReadChunk = 1 << 20;

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
          "cannot unpack {}: it expands to more than {} bytes; if it is text, unpack and split it "
          "first",
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
      return "it is truncated";
    case LZMA_MEM_ERROR:
      return "there is not enough memory";
    case LZMA_MEMLIMIT_ERROR:
      return "it needs more than 1 GiB of memory";
    case LZMA_OPTIONS_ERROR:
      return "it uses options that this liblzma does not support";
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

[[noreturn]] void refuse(const std::filesystem::path& path, bool cut_short) {
  fail("cannot unpack {}: {}; fetch the file again", path.string(),
       cut_short ? "it is truncated" : "its contents are damaged");
}
[[noreturn]] void refuse_for_memory(const std::filesystem::path& path) {
  fail("cannot unpack {}: there is not enough memory", path.string());
}

/// "BZh", a digit, and the first block's magic: a text too may begin with BZh.
bool is_bz2(std::string_view bytes) {
  return bytes.size() > 4 && bytes.starts_with("BZh") && bytes.substr(4).starts_with("1AY&SY");
}

std::string unpack_bz2(const std::string& packed, const std::filesystem::path& path) {
  bz_stream stream = {};
  if (BZ2_bzDecompressInit(&stream, 0, 0) != BZ_OK) refuse_for_memory(path);
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
  if (result != BZ_STREAM_END) refuse(path, stuck);
  if (stream.avail_in > 0 || !rest.empty())
    fail("{}: several bz2 streams in one file are not supported; unpack it with bunzip2",
         path.string());
  return text.take();
}

std::string unpack_gzip(const std::string& packed, const std::filesystem::path& path) {
  z_stream stream = {};
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&stream, kGzipOnly + MAX_WBITS) != Z_OK) refuse_for_memory(path);
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> end_stream(&stream, &inflateEnd);
  std::string_view rest = packed;
  Unpacked text(packed.size(), path);
  std::vector<char> part(kReadChunk);
  for (int result = Z_OK; result != Z_STREAM_END || stream.avail_in > 0 || !rest.empty();) {
    if (result == Z_STREAM_END)
      inflateReset(&stream);     // one file after the other, as gzip takes it
    if (stream.avail_in == 0) {  // it counts in 32 bits
      if (rest.empty()) refuse(path, true);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
      stream.avail_in = static_cast<unsigned>(std::min(rest.size(), std::size_t{1} << 30));
      rest.remove_prefix(stream.avail_in);
    }
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = static_cast<unsigned>(part.size());
    result = inflate(&stream, Z_NO_FLUSH);
    text.append({part.data(), part.size() - stream.avail_out});
    if (result != Z_OK && result != Z_STREAM_END) refuse(path, result == Z_BUF_ERROR);
  }
  return text.take();
}

std::string unpack_zstd(const std::string& packed, const std::filesystem::path& path) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          &ZSTD_freeDStream);
  if (!stream) refuse_for_memory(path);
  Unpacked text(packed.size(), path);
  std::vector<char> part(kReadChunk);
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::size_t result = 1;  // 0: at the end of a frame
  while (in.pos < in.size || result != 0) {
    ZSTD_outBuffer out{part.data(), part.size(), 0};
    const std::size_t before = in.pos;
    result = ZSTD_decompressStream(stream.get(), &out, &in);
    if (ZSTD_isError(result) != 0) refuse(path, false);
    text.append({part.data(), out.pos});
    if (result != 0 && in.pos == before && out.pos == 0) refuse(path, true);
  }
  return text.take();
}

struct Format {
  std::string_view name;
  bool (*is)(std::string_view bytes);
  std::string (*unpack)(const std::string& packed, const std::filesystem::path& path);
};
constexpr Format kFormats[] = {
    {"xz", [](std::string_view bytes) { return bytes.starts_with(kXzMagic); }, &unpack_xz},
    {"bzip2", &is_bz2, &unpack_bz2},
    {"gzip", [](std::string_view bytes) { return bytes.starts_with(kGzipMagic); }, &unpack_gzip},
    {"zstd", [](std::string_view bytes) { return bytes.starts_with(kZstdMagic); }, &unpack_zstd},
};

}  // namespace

std::string_view packing_of(std::string_view bytes) {
  for (const Format& format : kFormats)
    if (format.is(bytes)) return format.name;
  return {};
}

std::filesystem::path name_without_packing(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 4> kEndings = {".gz", ".xz", ".bz2", ".zst"};
  const std::filesystem::path name = path.filename();
  return std::ranges::find(kEndings, name.extension().string()) != kEndings.end() ? name.stem()
                                                                                  : name;
}

std::string unpacked(const std::string& packed, const std::filesystem::path& path) {
  for (const Format& format : kFormats)
    if (format.is(packed)) return format.unpack(packed, path);
  return packed;
}

}  // namespace focus
