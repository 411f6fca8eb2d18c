#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

// The memory that this process takes and may take.
namespace focus {

/// The most memory that this process has had resident so far, in bytes; 0 where the system does
/// not say.
std::size_t peak_resident_bytes();
/// The memory that this process may take: the machine's, or less where a control group of its has
/// less, when it is first asked for; without end where the system does not say.
std::size_t memory_limit();
/// Where control groups of this process's allow less than the machine has: what the other processes
/// in them leave of it at this moment, in bytes.
std::optional<std::size_t> room_in_control_groups();
/// What of this process's memory is resident now and its own: no file holds it; 0 where the system
/// does not say.
std::size_t anonymous_bytes();
/// What follows "key" and a colon in one of the kernel's files, "/proc/self/status"; or empty.
std::string system_field(const char* path, const std::string& key);

/// Memory that a process holds back and never touches, so that work which must not fail for want of
/// memory finds some when it is released. It counts against `ulimit -v` and `-d`, not as resident.
class MemoryReserve {
 public:
  /// Throws std::bad_alloc.
  explicit MemoryReserve(std::size_t bytes);
  ~MemoryReserve() { release(); }
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  void release();
  /// Takes it again where the limits allow it.
  void retake();

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

/// Has a separate thread ask the system to read memory of a mapped file that is needed soon, so
/// that those that compute wait neither for the disk nor for room in memory. `owner` keeps it
/// mapped until then. Harmless for numbers in memory already or in no file, and where a read fails.
void read_ahead(const void* numbers, std::size_t bytes, std::shared_ptr<const void> owner);

/// Returns when all requests are made and no owner is held any more.
void wait_for_read_ahead();

}  // namespace focus
