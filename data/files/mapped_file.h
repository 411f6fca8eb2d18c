#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace focus {

/// A file as memory, read-only: nothing of it is read before it is looked at, and all processes
/// that map it share what was read. What others write into the file meanwhile may be seen. Where
/// the file becomes shorter, or its disk fails, looking at what is gone raises SIGBUS: a program
/// installs a handler for it, which asks mapped_file_at().
class MappedFile {
 public:
  /// Maps the first `size` bytes of an open file, which may be closed then; `path` is for messages.
  /// Throws std::runtime_error where the file has fewer or the system refuses.
  MappedFile(int descriptor, std::size_t size, const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  friend const char* mapped_file_at(const void* address) noexcept;
  std::span<const std::byte> bytes_;
  struct Place;
  Place* place_ = nullptr;  // in the table of mapped files
};

/// The path of the file that is mapped where `address` lies; null where none is. May be called from
/// a signal handler.
const char* mapped_file_at(const void* address) noexcept;

}  // namespace focus
