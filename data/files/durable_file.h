#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace focus {

/// A file that appears whole or not at all: it is written under a temporary name in the same
/// folder, and commit() moves it to `target`. After a crash or a failure at any point the old file,
/// or none, is there. Every function here throws std::runtime_error with the path, the system's
/// reason and a hint.
class DurableFile {
 public:
  /// Refuses a target whose folder is missing, and one that exists and is not a regular file.
  /// Removes what a process that is gone has left of this target, as sweep_orphans() does.
  explicit DurableFile(std::filesystem::path target);
  /// Removes the temporary file unless commit() has succeeded.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  const std::filesystem::path& target() const { return target_; }
  /// Where to write. The file does not exist yet: whoever writes creates it and closes it.
  const std::filesystem::path& temporary() const { return temporary_; }
  /// fsync(file), verify(temporary()) where given, rename, fsync(folder). What `verify` throws
  /// reaches the caller, and the target stays as it was.
  void commit(const std::function<void(const std::filesystem::path&)>& verify = {});

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

/// Writes bytes one after the other into the temporary file of a DurableFile, which it creates.
/// Errors name the target.
class FileWriter {
 public:
  explicit FileWriter(const DurableFile& file);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void close();

 private:
  std::filesystem::path target_;
  int descriptor_ = -1;
};

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

/// Writes a whole file durably.
void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_durably(const std::filesystem::path& path, std::string_view text);

/// A hidden name beside `target` that no other process takes, and that sweep_orphans knows.
std::filesystem::path temporary_name(const std::filesystem::path& target);

/// Removes the temporary files and folders in `folder` whose writing process is gone, all or those
/// of the target with that name; returns how many. For folders that one machine writes: process
/// numbers of another machine mean nothing here.
std::size_t sweep_orphans(const std::filesystem::path& folder, std::string_view target_name = {});

/// Makes a folder and those above it that are missing; they stay when the power fails.
void make_folder_durably(const std::filesystem::path& folder);

/// fsync of a file or a folder.
void sync_to_disk(const std::filesystem::path& path);

/// Throw: "cannot <action> <path>: <the text of errno>; <what to do>", which is another thing where
/// a file was to be read than where one was to be written.
[[noreturn]] void fail_reading(std::string_view action, const std::filesystem::path& path,
                               int error);
[[noreturn]] void fail_writing(std::string_view action, const std::filesystem::path& path,
                               int error);

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
