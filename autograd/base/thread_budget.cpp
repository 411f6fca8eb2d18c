#include "autograd/base/thread_budget.h"

#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>

#include "autograd/base/profile.h"

namespace focus {
namespace {

/// The thread that starts regions has one.
thread_local ThreadBudget budget;

ThreadBudget::Usage usage() {
  timespec cpu{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  rusage process{};
  getrusage(RUSAGE_SELF, &process);
  return {static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec),
          process.ru_nivcsw};
}

}  // namespace

void ThreadBudget::judge(double now, const Usage& usage) {
  const double seconds = now - window_;
  const double off = 1 - (usage.cpu_seconds - before_.cpu_seconds) / seconds;
  // A thread that waits for a disk or a user is off its core too, but nobody took it.
  const bool crowded = off > kLargestShare && usage.preemptions > before_.preemptions &&
                       seconds < kLongRegion * regions_;
  window_ = now;
  regions_ = 0;
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
  return budget.threads(most, now(), usage);
}

}  // namespace focus
