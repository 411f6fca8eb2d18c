// Loaded before the C library (LD_PRELOAD), it makes one call of a program fail: the n-th of those
// that open, read, write, sync, rename, cut, map or make something below a folder. All by the
// environment:
//   FOCUS_FAULT_UNDER  the folder; calls on other paths and descriptors are left alone
//   FOCUS_FAULT_AT     n, from 1; 0: none fails
//   FOCUS_FAULT_KIND   EIO, ENOSPC, EDQUOT, EINTR, or SHORT: a read or write of half of what was
//   asked.
//                      A call that cannot fail in this way is not counted
//   FOCUS_FAULT_LOG    a file that gets the number of calls counted and, in the next line, the one
//   that
//                      failed
// It knows nothing of focus, and allocates nothing: a program may call it before main.
#include <dlfcn.h>
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

bool below(const char* path) {
  return path != nullptr && setting().active &&
         strncmp(path, setting().under, strlen(setting().under)) == 0;
}
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

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int open_at(const char* name, int folder, const char* path, int flags, mode_t mode) {
  using Open = int(int, const char*, int, ...);
  static Open* const real = next<Open>("openat");
  (void)name;
  const bool mine = below(path);
  if (mine && strikes(Call::open)) return -1;
  const int descriptor = real(folder, path, flags, mode);
  watch(descriptor, mine);
  return descriptor;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

/// A read or write of `size` bytes by `call(bytes)`.
template <class Result>
Result move_bytes(Call kind, int descriptor, size_t size, auto&& call) {
  if (!known(descriptor) || size == 0 || !strikes(kind)) return call(size);
  if (setting().error != 0) return -1;
  return call(size > 1 ? size / 2 : size);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("open", AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("open64", AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("openat", folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<FILE*(const char*, const char*)>("fopen");
  const bool mine = below(path);
  if (mine && strikes(Call::open)) return nullptr;
  FILE* const file = real(path, mode);
  if (file != nullptr) watch(fileno(file), mine);
  return file;
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
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
  return move_bytes<ssize_t>(Call::read, descriptor, size,
                             [&](size_t n) { return real(descriptor, to, n); });
}
ssize_t pread64(int descriptor, void* to, size_t size, off64_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off64_t)>("pread64");
  return move_bytes<ssize_t>(Call::read, descriptor, size,
                             [&](size_t n) { return real(descriptor, to, n, offset); });
}
ssize_t pread(int descriptor, void* to, size_t size, off_t offset) {
  return pread64(descriptor, to, size, offset);
}
ssize_t write(int descriptor, const void* from, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  return move_bytes<ssize_t>(Call::write, descriptor, size,
                             [&](size_t n) { return real(descriptor, from, n); });
}
ssize_t pwrite64(int descriptor, const void* from, size_t size, off64_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return move_bytes<ssize_t>(Call::write, descriptor, size,
                             [&](size_t n) { return real(descriptor, from, n, offset); });
}
ssize_t pwrite(int descriptor, const void* from, size_t size, off_t offset) {
  return pwrite64(descriptor, from, size, offset);
}
ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  static auto* const real = next<ssize_t(int, const struct iovec*, int)>("writev");
  return move_bytes<ssize_t>(Call::write, descriptor, static_cast<size_t>(count), [&](size_t n) {
    return real(descriptor, parts, static_cast<int>(n));
  });
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
int ftruncate64(int descriptor, off64_t size) {
  static auto* const real = next<int(int, off64_t)>("ftruncate64");
  if (known(descriptor) && strikes(Call::cut)) return -1;
  return real(descriptor, size);
}
int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }
void* mmap64(void* where, size_t size, int protection, int flags, int descriptor, off64_t offset) {
  static auto* const real = next<void*(void*, size_t, int, int, int, off64_t)>("mmap64");
  if ((flags & MAP_ANONYMOUS) == 0 && known(descriptor) && strikes(Call::map)) return MAP_FAILED;
  return real(where, size, protection, flags, descriptor, offset);
}
void* mmap(void* where, size_t size, int protection, int flags, int descriptor, off_t offset) {
  return mmap64(where, size, protection, flags, descriptor, offset);
}
}
