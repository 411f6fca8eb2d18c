#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace focus {

/// A file that is open for reading: a regular one, or where `pipes` are read, a pipe. Links are
/// followed wherever they lead: the caches of Hugging Face are made of them. All else is refused
/// before it is opened: folders, devices (/dev/zero never
/// ends), sockets, and a pipe into which nobody writes.
class InputFile {
 public:
  enum class Pipes { refused, read };

  /// Throws std::runtime_error with the path, what is wrong and what to do.
  explicit InputFile(std::filesystem::path path, Pipes pipes = Pipes::refused);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  /// Bytes when it was opened; 0 of a pipe, and of what /proc makes up.
  std::uint64_t size() const { return size_; }
  bool is_pipe() const { return pipe_; }

  /// The next bytes: as many as fit into `out`, fewer at the end alone. Throws std::runtime_error.
  std::size_t read(std::span<std::byte> out);
  /// Those at `offset`, which must be there. Throws std::runtime_error.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  void open_pipe();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  bool pipe_ = false;
  std::optional<std::byte> first_;  // of a pipe: read already
};

/// The system's open(), closed when another program is started, and tried again where a signal came
/// between. Returns -1 with errno where it fails.
int open_file(const std::filesystem::path& path, int flags, mode_t mode = 0);

/// Throws as InputFile does where `path` is no regular file: for those that a library opens.
void check_is_file(const std::filesystem::path& path);

/// Whether there is anything of this name, even a link that leads nowhere. Opening that reports why
/// it cannot be read.
bool is_there(const std::filesystem::path& path);

/// The bytes of a file, or of what comes out of a pipe, as they are. Throws std::runtime_error
/// where it cannot be read (see InputFile) or is more than fits into memory.
std::string read_file(const std::filesystem::path& path);

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
