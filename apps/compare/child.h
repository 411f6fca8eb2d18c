#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace focus::app {

/// What a child process left behind.
struct ChildResult {
  int status = 0;               // of exit; 128 plus the signal's number where one ended it
  std::int64_t peak_bytes = 0;  // largest resident memory
};

/// Runs this program once more with these arguments, in a process of its own so that its peak
/// memory is its own; all its output is appended to `log`. It takes no part in the terminal's
/// Ctrl-C: while it runs, `tick` is called some ten times a second, and the first time that this
/// is a signal's number, that signal is passed on to it; 0 passes nothing. The child is asked to
/// stop where this process dies. Of a launcher of several processes (apps/mpi.h) it knows nothing.
/// Throws std::runtime_error where it cannot be started.
ChildResult run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                      const std::function<int()>& tick);

}  // namespace focus::app
