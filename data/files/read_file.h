#pragma once

#include <filesystem>
#include <string>

namespace focus {

/// The bytes of a file, or of what comes out of a pipe, as they are. Throws std::runtime_error
/// where it cannot be read (see InputFile) or is more than fits into memory.
std::string read_file(const std::filesystem::path& path);

}  // namespace focus
