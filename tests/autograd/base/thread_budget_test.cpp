// Threads that do not get their cores are left out for a while.
#include "autograd/base/thread_budget.h"

#include <gtest/gtest.h>

namespace focus {
namespace {

/// Regions of a fifth of a millisecond each, or of another length, on a simulated clock.
struct Simulation {
  ThreadBudget budget;
  double now = 100, cpu_seconds = 0;
  long preemptions = 0;
  int threads = 0;
  double length = 2e-4;

  /// Runs regions of up to `most` threads for `seconds`. In each that has more than `free` threads
  /// the first thread is off its core for `off` of the time. Returns the share of the regions that
  /// had `most` threads.
  double run(double seconds, int most, int free, double off, bool preempted = true) {
    int regions = 0, all = 0;
    for (const double end = now + seconds; now < end; ++regions) {
      threads = budget.threads(most, now, [&] {
        return ThreadBudget::Usage{cpu_seconds, preemptions};
      });
      all += threads == most;
      const bool waits = threads > free;
      now += length;
      cpu_seconds += waits ? (1 - off) * length : length;
      preemptions += waits && preempted;
    }
    return static_cast<double>(all) / regions;
  }
};

TEST(ThreadBudget, UsesAllThreadsUnlessOthersTakeTheirCores) {
  Simulation s;
  EXPECT_EQ(s.run(1, 4, 4, 0), 1);
  EXPECT_EQ(s.run(1, 4, 0, 0.2), 1) << "off for a fifth of the time";
  EXPECT_EQ(s.run(1, 4, 0, 0.9, false), 1) << "it waits for a disk, and nobody took a core";
  s.length = 2e-3;
  EXPECT_EQ(s.run(1, 4, 0, 0.6), 1) << "in long regions the others take its chunks";
}

TEST(ThreadBudget, LeavesOutWhatOtherProgramsHoldAndTriesAgain) {
  for (const int free : {1, 2, 3}) {
    Simulation s;
    s.run(1, 4, free, 0.6);
    EXPECT_EQ(s.threads, free);
    EXPECT_LT(s.run(10, 4, free, 0.6), 0.05) << "it tries more threads seldom";
    s.run(8, 4, 4, 0);
    EXPECT_EQ(s.run(1, 4, 4, 0), 1) << "the other programs have ended";
  }
}

TEST(ThreadBudget, NeverHasFewerThanOne) {
  Simulation s;
  for (int i = 0; i < 20; ++i) {
    s.run(0.5, 3, 0, 0.9);
    EXPECT_GE(s.threads, 1);
  }
  s.run(0.1, 1, 0, 0.9);
  EXPECT_EQ(s.threads, 1);
}

}  // namespace
}  // namespace focus
