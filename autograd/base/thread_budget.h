#pragma once

namespace focus {

/// How many threads parallel regions use beside other programs. If another program holds the core
/// of one thread, all others wait for it, some milliseconds in each region: in short regions fewer
/// threads are then faster. While that is so one thread is left out, and tried again after a while.
/// In long regions the others take the chunks of the one that waits. No result depends on the
/// number of threads.
class ThreadBudget {
 public:
  /// What the thread that starts the regions has had: seconds on a core, and how often the system
  /// took a core from its process.
  struct Usage {
    double cpu_seconds = 0;
    long preemptions = 0;
  };

  /// The number of threads, of `most`, of a region that starts at the time `now` (seconds). `usage`
  /// gives the Usage up to now; it is called seldom.
  template <class F>
  int threads(int most, double now, F&& usage) {
    if (now - window_ >= kWindow) judge(now, usage());
    if (left_out_ > 0 && now >= until_) {
      --left_out_;
      until_ = now + pause_;
    }
    ++regions_;
    return used_ = most > left_out_ ? most - left_out_ : 1;
  }

 private:
  static constexpr double kWindow = 0.02, kLargestShare = 0.25;  // seconds; of time off the cores
  static constexpr double kShortestPause = 0.05, kLongestPause = 2, kLongRegion = 5e-4;

  /// After a window of time: whether a thread is to be left out.
  void judge(double now, const Usage& usage);

  int left_out_ = 0, used_ = 1, regions_ = 0;  // the regions of this window
  double window_ = 0, pause_ = kShortestPause, until_ = 0;
  Usage before_;
};

/// The threads of a region that this thread is about to start, for `chunks` pieces of work: one for
/// a single piece, or inside another region.
int region_threads(long chunks);

}  // namespace focus
