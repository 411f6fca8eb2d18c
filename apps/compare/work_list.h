#pragma once

#include <filesystem>
#include <optional>

#include "optim/ranks.h"

namespace focus::app {

/// Pieces of work, numbered from 0, of which each process takes the next that nobody has taken: who
/// makes the folder of its number has it. So a process that is done early takes more. All of them
/// have to see the folder; it is created first and removed last.
class WorkList {
 public:
  /// Every process makes one. Throws std::runtime_error where the folder cannot be made, or is not
  /// seen by all.
  WorkList(std::filesystem::path folder, std::size_t pieces, Ranks& ranks);

  /// The next piece, for this process alone; nothing where all have been taken.
  std::optional<std::size_t> take();
  /// Every process, after its last piece: returns once all are here.
  void finish();

 private:
  const std::filesystem::path folder_;
  const std::size_t pieces_;
  Ranks& ranks_;
  std::size_t next_ = 0;
};

}  // namespace focus::app
