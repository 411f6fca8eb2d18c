#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace focus {

/// What the environment variable names, or another folder.
inline std::filesystem::path folder_of(const char* variable, const char* otherwise) {
  const char* folder = std::getenv(variable);
  return folder != nullptr && *folder != '\0' ? folder : otherwise;
}
/// Golden files: what the real libraries answer.
inline std::filesystem::path golden_folder() {
  return folder_of("FOCUS_GOLDEN_DIR", FOCUS_SOURCE_DIR "/tests/golden");
}
/// Published models, tokenizers and texts, which are too large for the repository.
inline std::filesystem::path shared_folder() {
  return folder_of("FOCUS_SHARED_DIR", FOCUS_SOURCE_DIR "/../shared");
}

/// The golden GGUF files, the repository's own and the shared ones, whose names end so, sorted.
inline std::vector<std::filesystem::path> golden_gguf_files(const std::string& ending) {
  std::vector<std::filesystem::path> found;
  for (const auto& folder : {golden_folder() / "gguf", shared_folder() / "golden/gguf"}) {
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename().string().ends_with(ending)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace focus
