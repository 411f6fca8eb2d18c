#include "data/files/notice.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <set>

namespace focus {

void say_notice(const std::string& line) {
  constexpr std::size_t kMostRemembered = 1000;
  static std::mutex mutex;
  static std::set<std::string> said;
  {
    const std::scoped_lock lock(mutex);
    if (said.contains(line)) return;
    if (said.size() < kMostRemembered) said.insert(line);
  }
  spdlog::warn("notice: {}", line);
}

}  // namespace focus
