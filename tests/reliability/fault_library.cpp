// Loaded before the C library (LD_PRELOAD), it makes one call of a program fail: the n-th of those
// that open, read, write, sync, rename, cut, map or make something below a folder. All by the
// environment:
//   FOCUS_FAULT_UNDER  the folder; calls on other paths and descriptors are left alone
//   FOCUS_FAULT_AT     n, from 1; 0: none fails
//   FOCUS_FAULT_KIND   EIO, ENOSPC, EDQUOT, EINTR, or SHORT: a read or write of half of the bytes.
//                      A call that cannot fail in this way is not counted
//   FOCUS_FAULT_LOG    a file that gets the number of calls counted and, in the next line, the one
//                      that failed
// It knows nothing of focus, and allocates nothing: a program may call it before main.
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/reliability/preload.h"

namespace {

enum class Call { open, make_folder, read, write, sync, rename, cut, map };
constexpr const char* kNames[] = {"open",  "mkdir",  "read",      "write",
                                  "fsync", "rename", "ftruncate", "mmap"};

constexpr int kDescriptors = 4096;
std::atomic<bool> watched[kDescriptors];
std::atomic<long> counted{0};
std::atomic<int> failed_call{-1};

struct Setting {
  const char* under = getenv("FOCUS_FAULT_UNDER");
  const char* log = getenv("FOCUS_FAULT_LOG");
  long at = 0;
  int error = 0;  // 0: a short read or write
  bool active = false;
  Setting() {
    if (const char* n = getenv("FOCUS_FAULT_AT")) at = atol(n);
    const char* kind = getenv("FOCUS_FAULT_KIND");
    if (kind == nullptr || under == nullptr) return;
    active = true;
    if (strcmp(kind, "EIO") == 0) error = EIO;
    if (strcmp(kind, "ENOSPC") == 0) error = ENOSPC;
    if (strcmp(kind, "EDQUOT") == 0) error = EDQUOT;
    if (strcmp(kind, "EINTR") == 0) error = EINTR;
  }
  bool can_fail(Call call) const {
    const bool moves_bytes = call == Call::read || call == Call::write;
    if (error == 0) return moves_bytes;
    if (error == EINTR) return moves_bytes || call == Call::open;
    if (error == EIO) return true;
    return call != Call::read && call != Call::map;  // a full disk
  }
};

const Setting& setting() {
  static const Setting& one = *new Setting;
  return one;
}

/// What comes at the end of the process, however it ends but by a signal. A process that counted
/// fewer calls than one before it, its child, leaves the number as it is.
struct AtEnd {
  ~AtEnd() {
    if (setting().log == nullptr) return;
    char text[64] = "";
    const long file = syscall(SYS_openat, AT_FDCWD, setting().log, O_RDWR | O_CREAT, 0666);
    if (file < 0) return;
    if (syscall(SYS_read, file, text, sizeof(text) - 1) > 0 && atol(text) > counted)
      counted = atol(text);
    const int call = failed_call;
    const int length =
        snprintf(text, sizeof(text), "%ld\n%s\n", counted.load(), call < 0 ? "none" : kNames[call]);
    syscall(SYS_ftruncate, file, 0);
    syscall(SYS_pwrite64, file, text, length, 0);
    syscall(SYS_close, file);
  }
} at_end;

bool below(const char* path) { return setting().active && lies_below(path, setting().under); }
bool known(int descriptor) {
  return descriptor >= 0 && descriptor < kDescriptors && watched[descriptor];
}
void watch(int descriptor, bool yes) {
  if (descriptor >= 0 && descriptor < kDescriptors) watched[descriptor] = yes;
}

/// Counts a call; is it the one that must fail?
bool strikes(Call call) {
  if (!setting().can_fail(call) || ++counted != setting().at) return false;
  failed_call = static_cast<int>(call);
  errno = setting().error;
  if (call == Call::map) errno = ENOMEM;
  return true;
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  static auto* const real = next<int(int, const char*, int, ...)>("openat");
  const bool mine = below(path);
  if (mine && strikes(Call::open)) return -1;
  const int descriptor = real(folder, path, flags, mode);
  watch(descriptor, mine);
  return descriptor;
}

/// A read or write of `size` bytes, or parts, by the C library's `real`.
ssize_t move_bytes(Call kind, auto* real, int descriptor, auto* bytes, auto size, auto... offset) {
  if (known(descriptor) && size != 0 && strikes(kind)) {
    if (setting().error != 0) return -1;
    if (size > 1) size /= 2;
  }
  return real(descriptor, bytes, size, offset...);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<FILE*(const char*, const char*)>("fopen");
  const bool mine = below(path);
  if (mine && strikes(Call::open)) return nullptr;
  FILE* const file = real(path, mode);
  if (file != nullptr) watch(fileno(file), mine);
  return file;
}
int close(int descriptor) {
  static auto* const real = next<int(int)>("close");
  watch(descriptor, false);
  return real(descriptor);
}
int mkdir(const char* path, mode_t mode) {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  if (below(path) && strikes(Call::make_folder)) return -1;
  return real(path, mode);
}
ssize_t read(int descriptor, void* to, size_t size) {
  static auto* const real = next<ssize_t(int, void*, size_t)>("read");
  return move_bytes(Call::read, real, descriptor, to, size);
}
ssize_t pread(int descriptor, void* to, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return move_bytes(Call::read, real, descriptor, to, size, offset);
}
ssize_t write(int descriptor, const void* from, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  return move_bytes(Call::write, real, descriptor, from, size);
}
ssize_t pwrite(int descriptor, const void* from, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return move_bytes(Call::write, real, descriptor, from, size, offset);
}
ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  static auto* const real = next<ssize_t(int, const struct iovec*, int)>("writev");
  return move_bytes(Call::write, real, descriptor, parts, count);
}
int fsync(int descriptor) {
  static auto* const real = next<int(int)>("fsync");
  if (known(descriptor) && strikes(Call::sync)) return -1;
  return real(descriptor);
}
int fdatasync(int descriptor) {
  static auto* const real = next<int(int)>("fdatasync");
  if (known(descriptor) && strikes(Call::sync)) return -1;
  return real(descriptor);
}
int rename(const char* from, const char* to) {
  static auto* const real = next<int(const char*, const char*)>("rename");
  if (below(to) && strikes(Call::rename)) return -1;
  return real(from, to);
}
int ftruncate(int descriptor, off_t size) {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  if (known(descriptor) && strikes(Call::cut)) return -1;
  return real(descriptor, size);
}
void* mmap(void* where, size_t size, int protection, int flags, int descriptor, off_t offset) {
  static auto* const real = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
  if ((flags & MAP_ANONYMOUS) == 0 && known(descriptor) && strikes(Call::map)) return MAP_FAILED;
  return real(where, size, protection, flags, descriptor, offset);
}
// With large files these are the same.
int open64(const char*, int, ...) __attribute__((alias("open")));
FILE* fopen64(const char*, const char*) __attribute__((alias("fopen")));
ssize_t pread64(int, void*, size_t, off_t) __attribute__((alias("pread")));
ssize_t pwrite64(int, const void*, size_t, off_t) __attribute__((alias("pwrite")));
int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));
void* mmap64(void*, size_t, int, int, int, off_t) __attribute__((alias("mmap")));
}
