#include "autograd/base/thread_budget.h"

#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>

#include "autograd/base/profile.h"

namespace focus {
namespace {

/// What a thread that starts regions has: its budget, and its regions since the last usage().
thread_local ThreadBudget budget;
thread_local long regions = 0, preemptions = 0;
thread_local double since = 0;

ThreadBudget::Usage usage(double now) {
  // In long regions the other threads take the chunks of one that waits for its core: it is worth
  // having, and what it waits for is not counted.
  constexpr double kLongRegion = 5e-4;
  const double seconds = (now - since) / static_cast<double>(regions);
  since = now;
  regions = 0;
  timespec cpu{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  rusage process{};
  getrusage(RUSAGE_SELF, &process);
  if (seconds < kLongRegion) preemptions = process.ru_nivcsw;
  return {static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec), preemptions};
}

}  // namespace

void ThreadBudget::judge(double now, const Usage& usage) {
  const double off = 1 - (usage.cpu_seconds - before_.cpu_seconds) / (now - window_);
  // A thread that waits for a disk or a user is off its core too, but nobody took it.
  const bool crowded = off > kLargestShare && usage.preemptions > before_.preemptions;
  window_ = now;
  before_ = usage;
  if (used_ == 1) return;  // says nothing about more
  if (crowded) {
    ++left_out_;
    until_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  } else if (left_out_ == 0) {
    pause_ = kShortestPause;
  }
}

int region_threads(long chunks) {
  const int most = omp_get_max_threads();
  if (chunks <= 1 || most == 1 || omp_in_parallel()) return 1;
  ++regions;
  const double start = now();
  return budget.threads(most, start, [&] { return usage(start); });
}

}  // namespace focus
