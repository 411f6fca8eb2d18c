#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace focus {

/// "xz", "bzip2", "gzip" or "zstd" where these bytes, a file's first, begin such a file; else
/// empty.
std::string_view packing_of(std::string_view bytes);

/// What is packed in the bytes of a file, which is `path` in messages; they themselves where they
/// are not packed. Throws std::runtime_error where they are damaged, cut short, or unpack to what
/// no text does: more than 256 MB and 1000 times their size, or a quarter of the machine's memory.
std::string unpacked(const std::string& packed, const std::filesystem::path& path);

/// A file's name without .gz, .xz, .bz2 or .zst.
std::filesystem::path name_without_packing(const std::filesystem::path& path);

}  // namespace focus
