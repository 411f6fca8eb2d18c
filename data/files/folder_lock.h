#pragma once

#include <filesystem>
#include <string>

namespace focus {

/// Keeps other processes out of a folder until it goes: a lock on the file `name` in it, which
/// holds the number of the process and stays behind, empty. Child processes hold it on, so that the
/// folder is free only when the last of them has ended, however this one ends; a lock of processes
/// that are gone bars nobody. On a file system without locks nobody is kept out.
class FolderLock {
 public:
  /// Throws std::runtime_error that names the holder where the folder is locked.
  FolderLock(const std::filesystem::path& folder, const std::string& name);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace focus
