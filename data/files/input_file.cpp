#include "data/files/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <new>
#include <string_view>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/files/durable_file.h"
#include "data/files/file_kind.h"

namespace focus {
namespace {

/// The writer of a pipe that a shell has just started may take a moment to come.
constexpr int kWaitForWriter = 2000;  // milliseconds

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// Refuses what is neither a regular file nor a pipe that may be read; is it a pipe?
bool check_kind(const std::filesystem::path& path, const struct stat& status, bool pipes) {
  if (S_ISREG(status.st_mode)) return false;
  if (pipes && S_ISFIFO(status.st_mode)) return true;
  fail("cannot read {}: it is {}, not a file{}", path.string(), kind_of(status.st_mode),
       S_ISFIFO(status.st_mode) ? "; write its output into a file" : "");
}

struct stat status_of(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) fail_reading("read", path, errno);
  return status;
}

}  // namespace

void check_is_file(const std::filesystem::path& path) { check_kind(path, status_of(path), false); }

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

int open_file(const std::filesystem::path& path, int flags, mode_t mode) {
  int descriptor = -1;
  do {
    descriptor = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

InputFile::InputFile(std::filesystem::path path, Pipes pipes) : path_(std::move(path)) {
  // Before it is opened, which does something to some devices and waits for a pipe's writer.
  check_kind(path_, status_of(path_), pipes == Pipes::read);
  descriptor_ = open_file(path_, O_RDONLY | O_NONBLOCK);
  if (descriptor_ < 0) fail_reading("read", path_, errno);
  try {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0) fail_reading("read", path_, errno);
    pipe_ = check_kind(path_, status, pipes == Pipes::read);
    if (pipe_)
      open_pipe();
    else
      size_ = static_cast<std::uint64_t>(status.st_size);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() { close(descriptor_); }

/// Waits for its writer, and from then on as long as that one takes.
void InputFile::open_pipe() {
  pollfd waiting = {.fd = descriptor_, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, kWaitForWriter) == 0) {
    // A pipe without a writer is at its end; of one that is silent nothing can be read now.
    std::byte byte{};
    const ssize_t got = ::read(descriptor_, &byte, 1);
    if (got == 0) fail("cannot read {}: no process writes into this pipe", path_.string());
    if (got == 1) first_ = byte;
  }
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) & ~O_NONBLOCK);
}

std::size_t InputFile::read(std::span<std::byte> out) {
  std::size_t done = 0;
  if (first_ && !out.empty()) {
    out[done++] = *first_;
    first_.reset();
  }
  while (done < out.size()) {
    const ssize_t got = ::read(descriptor_, out.data() + done, out.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading("read", path_, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading("read", path_, errno);
    if (got == 0)
      fail("{}: the file became shorter while it was read; get it again", path_.string());
    out = out.subspan(got);
    offset += static_cast<std::uint64_t>(got);
  }
}

std::string read_file(const std::filesystem::path& path) {
  constexpr std::uint64_t kChunk = 1 << 14, kMostOfAPipe = std::uint64_t{1} << 30;
  InputFile file(path, InputFile::Pipes::read);
  const std::uint64_t most = file.is_pipe() ? kMostOfAPipe : memory_limit();
  const auto refuse = [&](std::uint64_t size) {
    if (file.is_pipe())
      fail("cannot read {}: more than {} bytes came out of the pipe; write them into a file",
           path.string(), most);
    fail("cannot read {}: its {} bytes do not fit into memory; split it", path.string(), size);
  };
  if (file.size() > most) refuse(file.size());
  std::string bytes;
  try {
    // One byte more than there should be: then the first read that falls short is the last.
    for (std::uint64_t wanted = std::max(kChunk, file.size() + 1);; wanted = bytes.size()) {
      const std::size_t done = bytes.size();
      bytes.resize(done + wanted);
      const std::size_t got = file.read(std::as_writable_bytes(std::span(bytes)).subspan(done));
      bytes.resize(done + got);
      if (got < wanted) {
        refuse_lfs_pointer(bytes, path);
        return bytes;
      }
      if (bytes.size() > most) refuse(bytes.size());
    }
  } catch (const std::bad_alloc&) {
    refuse(std::max<std::uint64_t>(file.size(), bytes.size()));
  }
  return bytes;
}

/// An entry of the table of mapped files. Entries are added and used again, never freed: a signal
/// handler may read them at any time.
struct MappedFile::Place {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // end 0: free
  std::array<char, 1024> path{};
  std::atomic<bool> taken{true};
  Place* next = nullptr;

  static std::atomic<Place*> first;
  static Place* take();
};

std::atomic<MappedFile::Place*> MappedFile::Place::first{nullptr};

MappedFile::Place* MappedFile::Place::take() {
  for (Place* place = first.load(); place != nullptr; place = place->next)
    if (bool free = false; place->taken.compare_exchange_strong(free, true)) return place;
  auto* place = new Place;
  place->next = first.load();
  while (!first.compare_exchange_weak(place->next, place)) {
  }
  return place;
}

MappedFile::MappedFile(int descriptor, std::size_t size, const std::filesystem::path& path) {
  if (size == 0) return;
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail_reading("map", path, errno);
  if (static_cast<std::size_t>(status.st_size) < size)
    fail("{}: the file became shorter while it was read; get it again", path.string());
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) fail_reading("map", path, errno);
  bytes_ = {static_cast<const std::byte*>(mapped), size};
  place_ = Place::take();
  path.string().copy(place_->path.data(), place_->path.size() - 1);
  place_->begin = reinterpret_cast<std::uintptr_t>(mapped);
  place_->end = reinterpret_cast<std::uintptr_t>(mapped) + size;
}

MappedFile::~MappedFile() {
  if (place_ == nullptr) return;
  place_->end = 0;
  place_->path.fill('\0');
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  place_->taken = false;
}

const char* mapped_file_at(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const auto* place = MappedFile::Place::first.load(); place != nullptr; place = place->next)
    if (at >= place->begin && at < place->end) return place->path.data();
  return nullptr;
}

}  // namespace focus
