#include "autograd/base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <stop_token>
#include <system_error>
#include <thread>
#include <vector>

namespace focus {
namespace {

std::size_t status_bytes(const std::string& field) {
  const std::string kib = system_field("/proc/self/status", field);  // "123456 kB"
  return kib.empty() ? 0 : std::stoull(kib) * 1024;
}

/// What a control group allows, and where it says what its processes have.
struct GroupLimit {
  std::size_t bytes;
  std::filesystem::path figures;  // its memory.stat
  std::string own;                // the line there of memory that no file holds
};

/// Adds the limits of a group of a hierarchy and of those above it.
void add_limits(const std::filesystem::path& root, std::filesystem::path group, const char* name,
                const std::string& own, std::vector<GroupLimit>& limits) {
  for (group = group.relative_path();; group = group.parent_path()) {
    std::ifstream file(root / group / name);
    if (std::size_t bytes = 0; file >> bytes)  // else: "max"
      limits.push_back({bytes, root / group / "memory.stat", own});
    if (group.empty()) return;
  }
}

std::vector<GroupLimit> group_limits() {
  std::vector<GroupLimit> limits;
  std::ifstream groups("/proc/self/cgroup");  // "4:memory:/a/b", "0::/a/b"
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controller = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controller.empty()) add_limits("/sys/fs/cgroup", group, "memory.max", "anon", limits);
    if (controller == "memory")
      add_limits("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "total_rss", limits);
  }
  return limits;
}

std::size_t machine_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page)
                               : std::numeric_limits<std::size_t>::max();
}

std::size_t find_memory_limit() {
  std::size_t least = machine_memory();
  for (const GroupLimit& limit : group_limits()) least = std::min(least, limit.bytes);
  return least;
}

struct Range {
  char* begin;
  std::size_t bytes;
  std::shared_ptr<const void> owner;
};

Range whole_pages(const void* numbers, std::size_t bytes, std::shared_ptr<const void> owner) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(numbers), begin = at / page * page;
  return {reinterpret_cast<char*>(begin), at - begin + bytes, std::move(owner)};
}

/// Bytes of one request.
constexpr std::size_t kStep = std::size_t{4} << 20;

/// The disk works on its own, but making room for what it brings takes the time of whoever asks.
void read(const Range& range) {
  for (std::size_t at = 0; at < range.bytes; at += kStep)
    madvise(range.begin + at, std::min(kStep, range.bytes - at), MADV_WILLNEED);
}

class Reader {
 public:
  void add(Range range) {
    const std::lock_guard lock(mutex_);
    if (!start()) return;
    wanted_.push_back(std::move(range));
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return wanted_.empty() && !reading_; });
  }

 private:
  /// Whether there is a thread; where the system gives none, nothing is read ahead.
  bool start() {
    if (thread_.joinable()) return true;
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !wanted_.empty(); })) {
      Range range = std::move(wanted_.front());
      wanted_.pop_front();
      reading_ = true;
      lock.unlock();
      read(range);
      range.owner.reset();
      lock.lock();
      reading_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Range> wanted_;
  bool reading_ = false;
  std::jthread thread_;  // last: it is joined before the rest goes
};

Reader& reader() {
  static Reader one;
  return one;
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

std::optional<std::size_t> room_in_control_groups() {
  std::optional<std::size_t> least;
  for (const GroupLimit& limit : group_limits()) {
    if (limit.bytes >= machine_memory()) continue;
    std::ifstream figures(limit.figures);
    std::size_t all = 0, value = 0;
    for (std::string name; figures >> name >> value;)
      if (name == limit.own) all = value;
    const std::size_t others = all - std::min(all, anonymous_bytes());
    const std::size_t room = limit.bytes - std::min(limit.bytes, others);
    least = std::min(least.value_or(room), room);
  }
  return least;
}

std::size_t anonymous_bytes() { return status_bytes("RssAnon"); }

MemoryReserve::MemoryReserve(std::size_t bytes) : bytes_(bytes) {
  retake();
  if (memory_ == nullptr) throw std::bad_alloc();
}

void MemoryReserve::release() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  memory_ = nullptr;
}

void MemoryReserve::retake() {
  if (memory_ != nullptr) return;
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) memory_ = memory;
}

void read_ahead(const void* numbers, std::size_t bytes, std::shared_ptr<const void> owner) {
  reader().add(whole_pages(numbers, bytes, std::move(owner)));
}

void wait_for_read_ahead() { reader().wait(); }

}  // namespace focus
