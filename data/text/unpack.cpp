#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/text/text.h"

namespace focus {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view name, magic;
  int filter;
};
// bz2 by its first block too: a text may begin with BZh.
constexpr Format kFormats[] = {{"xz", "\xFD\x37zXZ\0"sv, ARCHIVE_FILTER_XZ},
                               {"bzip2", "1AY&SY"sv, ARCHIVE_FILTER_BZIP2},
                               {"gzip", "\x1F\x8B\x08"sv, ARCHIVE_FILTER_GZIP},
                               {"zstd", "\x28\xB5\x2F\xFD"sv, ARCHIVE_FILTER_ZSTD}};

const Format* format_of(std::string_view bytes) {
  for (const Format& format : kFormats) {
    const bool bz2 = format.filter == ARCHIVE_FILTER_BZIP2;
    if (bz2 && (bytes.size() < 5 || !bytes.starts_with("BZh"))) continue;
    if (bytes.substr(bz2 ? 4 : 0).starts_with(format.magic)) return &format;
  }
  return nullptr;
}

/// Text shrinks to a tenth of its size, or to a hundredth where it repeats itself. What shrank
/// below a thousandth is a bomb, unless it is small.
std::size_t size_limit(std::size_t packed) {
  constexpr std::size_t kFree = std::size_t{256} << 20, kRatio = 1000;
  return std::min(std::max(kFree, kRatio * packed), memory_limit() / 4);
}

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

std::uint32_t crc32(std::string_view bytes) {
  static const auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] >> 1) ^ ((table[i] & 1) * 0xEDB88320);
    }
    return table;
  }();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 255];
  return ~crc;
}

/// Compares the last member of a gzip file with its trailer, which libarchive does not do.
bool gzip_trailer_matches(std::string_view packed, std::string_view text) {
  std::size_t size = little_endian(packed.substr(packed.size() - 4));
  if ((text.size() & 0xFFFFFFFF) == size) size = text.size();  // one member, however large
  return size <= text.size() &&
         little_endian(packed.substr(packed.size() - 8)) == crc32(text.substr(text.size() - size));
}

}  // namespace

std::string_view packing_of(std::string_view bytes) {
  const Format* const format = format_of(bytes);
  return format == nullptr ? std::string_view() : format->name;
}

std::filesystem::path name_without_packing(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 4> kEndings = {".gz", ".xz", ".bz2", ".zst"};
  const std::filesystem::path name = path.filename();
  return std::ranges::find(kEndings, small_ending(name)) != kEndings.end() ? name.stem() : name;
}

std::string small_ending(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return ending;
}

std::string unpacked(const std::string& packed, const std::filesystem::path& path) {
  const Format* const format = format_of(packed);
  if (format == nullptr) return packed;
  const auto refuse = [&](std::string_view why) {
    fail("cannot unpack {}: {}; fetch the file again", path.string(), why);
  };
  const std::unique_ptr<archive, decltype(&archive_read_free)> in(archive_read_new(),
                                                                  &archive_read_free);
  // One filter: a file that was packed twice is unpacked once.
  check(in && archive_read_append_filter(in.get(), format->filter) == ARCHIVE_OK &&
            archive_read_support_format_raw(in.get()) == ARCHIVE_OK,
        "cannot unpack {}: libarchive does not read {}", path.string(), format->name);
  archive_entry* entry = nullptr;
  if (archive_read_open_memory(in.get(), packed.data(), packed.size()) != ARCHIVE_OK ||
      archive_read_next_header(in.get(), &entry) != ARCHIVE_OK)
    refuse("it is truncated, damaged or empty");
  const std::size_t limit = size_limit(packed.size());
  std::string text;
  std::vector<char> part(std::size_t{1} << 20);
  la_ssize_t got = 0;
  while ((got = archive_read_data(in.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > limit)
      fail(
          "cannot unpack {}: it expands to more than {} bytes; if it is text, unpack and split it "
          "first",
          path.string(), limit);
  }
  if (got < 0) {
    const char* const given = archive_error_string(in.get());
    const std::string_view error = given == nullptr ? "truncated" : given;
    if (error.find("runcated") != error.npos || error.find("No progress") != error.npos)
      refuse("it is truncated");
    refuse(fmt::format("its contents are damaged ({})", error));
  }
  if (std::cmp_not_equal(archive_filter_bytes(in.get(), -1), packed.size()))
    refuse("its contents are damaged (bytes follow its end)");
  if (format->filter == ARCHIVE_FILTER_GZIP && !gzip_trailer_matches(packed, text))
    refuse("its contents are damaged (wrong checksum)");
  return text;
}

}  // namespace focus
