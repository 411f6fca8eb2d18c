#pragma once

#include <filesystem>
#include <string>

namespace focus {

/// The bytes of a file as they are. Throws std::runtime_error where it cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace focus
