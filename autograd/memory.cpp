#include "autograd/memory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

namespace focus {
namespace {

std::size_t status_bytes(const std::string& field) {
  const std::string kib = system_field("/proc/self/status", field);  // "123456 kB"
  return kib.empty() ? 0 : std::stoull(kib) * 1024;
}

/// The least that a file of that name says in a folder of control groups and in those above it.
std::size_t least_in_groups(const std::filesystem::path& root, std::filesystem::path group,
                            const char* name) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (group = group.relative_path();; group = group.parent_path()) {
    std::ifstream file(root / group / name);
    if (std::size_t bytes = 0; file >> bytes) least = std::min(least, bytes);  // else: "max"
    if (group.empty()) return least;
  }
}

std::size_t find_memory_limit() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  std::size_t least = std::numeric_limits<std::size_t>::max();
  if (pages > 0 && page > 0)
    least = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  std::ifstream groups("/proc/self/cgroup");  // "4:memory:/a/b", "0::/a/b"
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controller = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controller.empty())
      least = std::min(least, least_in_groups("/sys/fs/cgroup", group, "memory.max"));
    if (controller == "memory")
      least =
          std::min(least, least_in_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  return least;
}

}  // namespace

std::string system_field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::size_t peak_resident_bytes() { return status_bytes("VmHWM"); }

std::size_t memory_limit() {
  static const std::size_t found = find_memory_limit();  // each file that is read asks for it
  return found;
}

std::size_t anonymous_bytes() { return status_bytes("RssAnon"); }

}  // namespace focus
