#include "autograd/base/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>

namespace focus {
namespace {

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

void read_ahead(const void* numbers, std::size_t bytes, std::shared_ptr<const void> owner) {
  reader().add(whole_pages(numbers, bytes, std::move(owner)));
}

void wait_for_read_ahead() { reader().wait(); }

}  // namespace focus
