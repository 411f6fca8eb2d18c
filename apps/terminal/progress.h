#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "data/text/format.h"

namespace focus::app {

struct ProgressOptions {
  std::string label = "train";
  std::int64_t total_steps = 0;
  std::int64_t first_step = 0;        // steps done before, by the run that is resumed
  double seconds_between_lines = 30;  // at least, if the stream is not a terminal
  bool inner = false;                 // part of a longer job: removed at its end
  std::FILE* stream = stderr;
  std::optional<bool> terminal = {};     // unset: asks the system
  std::function<double()> seconds = {};  // a clock; unset: the steady one
};

/// Progress of a long job. On a terminal one bar, redrawn at most ten times a second; in a file or
/// a pipe a line at the end and whenever nothing was printed for a while:
///   train [#####---------------] 120/500 24%  loss 3.4567  12.3k tok/s  left 1h02m
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports that step `step` (from 1) is done; `loss` may be NaN.
  void update(std::int64_t step, double loss, std::int64_t tokens);
  /// Prints a line above the bar.
  void note(std::string_view text);
  /// "  left 1h02m", the time that the remaining steps will take; empty while nothing says it.
  std::string left() const;
  /// Draws the last state and ends the line; the destructor does it otherwise.
  void finish();

 private:
  std::string line(bool with_bar) const;
  void draw();
  std::size_t columns() const;

  ProgressOptions options_;
  bool terminal_ = false;
  bool finished_ = false;
  bool quiet_ = false;  // --log-level asks for less
  bool shown_ = true;   // the latest update has been drawn or printed
  std::int64_t step_ = 0;
  std::int64_t tokens_ = 0;
  double loss_ = 0;
  double start_ = 0;
  double last_drawn_ = 0;
};

/// A bar for a job that reports the share that is done, 0 to 1. It ends with the last copy of the
/// function.
std::function<void(double)> share_bar(const std::string& label);

}  // namespace focus::app
