#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace focus {

/// A folder that appears whole or not at all: it is filled under a temporary name beside its place,
/// and commit() moves it there. Throws std::runtime_error, one line.
class DurableFolder {
 public:
  /// What a file of that name is: true where a program like this one wrote it.
  using IsOurs = std::function<bool(const std::string& name)>;

  /// Refuses a target whose parent is missing and one that is no folder. One that holds files is
  /// refused too, unless `overwrite`, and then where it holds a folder or a file that is not ours:
  /// it is going to be replaced as a whole.
  DurableFolder(const std::filesystem::path& target, bool overwrite, const IsOurs& is_ours);
  /// Removes what was written unless commit() has succeeded.
  ~DurableFolder();
  DurableFolder(const DurableFolder&) = delete;
  DurableFolder& operator=(const DurableFolder&) = delete;

  /// Where to write: an empty folder.
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Moves the folder to its place; one that stood there is swapped in the same instant, then
  /// removed.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

}  // namespace focus
