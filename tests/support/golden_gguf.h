#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace focus {

/// The folders with golden GGUF files: the repository's own, or FOCUS_GOLDEN_DIR's, and those of
/// FOCUS_SHARED_DIR, where they are.
inline std::vector<std::filesystem::path> golden_gguf_folders() {
  const auto folder_of = [](const char* variable, const char* otherwise) {
    const char* folder = std::getenv(variable);
    return std::filesystem::path(folder != nullptr && *folder != '\0' ? folder : otherwise);
  };
  std::vector<std::filesystem::path> folders = {
      folder_of("FOCUS_GOLDEN_DIR", FOCUS_SOURCE_DIR "/tests/golden") / "gguf",
      folder_of("FOCUS_SHARED_DIR", FOCUS_SOURCE_DIR "/../shared") / "golden/gguf"};
  std::erase_if(folders, [](const auto& folder) { return !std::filesystem::is_directory(folder); });
  return folders;
}

/// The files there whose names end so, sorted.
inline std::vector<std::filesystem::path> golden_gguf_files(const std::string& ending) {
  std::vector<std::filesystem::path> found;
  for (const auto& folder : golden_gguf_folders())
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename().string().ends_with(ending)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

}  // namespace focus
