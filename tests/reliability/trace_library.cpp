// Loaded before the C library (LD_PRELOAD), it writes down what a program does to the files below
// the folder FOCUS_TRACE_UNDER, in order, into the file FOCUS_TRACE_LOG, a line each:
//   open ID PATH    from now on ID means the file or folder that has this name now; made where it
//   was
//                   missing
//   cut ID SIZE     it has so many bytes now
//   write ID OFFSET HEX
//   sync ID         all of it is on the disk; of a folder: the names in it
//   rename FROM TO, unlink PATH, mkdir PATH
// Only calls that succeeded are written down. For programs of one thread that writes.
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/reliability/preload.h"

namespace {

constexpr int kDescriptors = 4096;
long number[kDescriptors];  // ID of an open file; 0: not of ours
long last_number = 0;

std::recursive_mutex& guard() {
  static std::recursive_mutex& one = *new std::recursive_mutex;
  return one;
}
const char* under() {
  static const char* const folder = getenv("FOCUS_TRACE_UNDER");
  return folder;
}
int log_file() {
  static const int file =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, getenv("FOCUS_TRACE_LOG"),
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  return file;
}

bool below(const char* path) { return under() != nullptr && lies_below(path, under()); }
long number_of(int descriptor) {
  return descriptor >= 0 && descriptor < kDescriptors ? number[descriptor] : 0;
}
void put(const char* text, size_t size) { syscall(SYS_write, log_file(), text, size); }

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
void say(const char* format, ...) {
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  put(line, static_cast<size_t>(size));
}
void say_write(long id, long offset, const char* bytes, size_t size) {
  constexpr char kDigits[] = "0123456789abcdef";
  say("write %ld %ld ", id, offset);
  char part[2048];
  for (size_t i = 0; i < size;) {
    size_t filled = 0;
    for (; i < size && filled + 2 <= sizeof(part); ++i) {
      part[filled++] = kDigits[static_cast<unsigned char>(bytes[i]) >> 4];
      part[filled++] = kDigits[bytes[i] & 15];
    }
    put(part, filled);
  }
  put("\n", 1);
}
/// Where a write would go; for files of ours.
long place_of(int descriptor) {
  if (number_of(descriptor) == 0) return 0;
  if ((fcntl(descriptor, F_GETFL) & O_APPEND) == 0) return lseek(descriptor, 0, SEEK_CUR);
  struct stat status;
  return fstat(descriptor, &status) == 0 ? status.st_size : 0;
}

void opened(int descriptor, const char* path, bool emptied) {
  if (descriptor < 0 || descriptor >= kDescriptors) return;
  number[descriptor] = below(path) ? ++last_number : 0;
  if (number[descriptor] == 0) return;
  say("open %ld %s\n", last_number, path);
  if (emptied) say("cut %ld 0\n", last_number);
}

int open_path(const char* path, int flags, mode_t mode) {
  const std::lock_guard lock(guard());
  const int descriptor = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  opened(descriptor, path, (flags & O_TRUNC) != 0);
  return descriptor;
}

int said(long result, const char* what, const char* path) {
  if (result == 0 && below(path)) say("%s %s\n", what, path);
  return static_cast<int>(result);
}
ssize_t said_write(ssize_t done, int descriptor, long place, const void* from) {
  if (done > 0 && number_of(descriptor) > 0)
    say_write(number_of(descriptor), place, static_cast<const char*>(from),
              static_cast<size_t>(done));
  return done;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_path(path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<FILE*(const char*, const char*)>("fopen");
  const std::lock_guard lock(guard());
  FILE* const file = real(path, mode);
  if (file != nullptr) opened(fileno(file), path, mode[0] == 'w');
  return file;
}
int close(int descriptor) {
  const std::lock_guard lock(guard());
  if (descriptor >= 0 && descriptor < kDescriptors) number[descriptor] = 0;
  return static_cast<int>(syscall(SYS_close, descriptor));
}
ssize_t pwrite(int descriptor, const void* from, size_t size, off_t offset) {
  const std::lock_guard lock(guard());
  return said_write(syscall(SYS_pwrite64, descriptor, from, size, offset), descriptor, offset,
                    from);
}
ssize_t write(int descriptor, const void* from, size_t size) {
  const std::lock_guard lock(guard());
  const long place = place_of(descriptor);
  return said_write(syscall(SYS_write, descriptor, from, size), descriptor, place, from);
}
ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t done = write(descriptor, parts[i].iov_base, parts[i].iov_len);
    if (done < 0) return all > 0 ? all : done;
    all += done;
  }
  return all;
}
int fsync(int descriptor) {
  const std::lock_guard lock(guard());
  const int result = static_cast<int>(syscall(SYS_fsync, descriptor));
  if (result == 0 && number_of(descriptor) > 0) say("sync %ld\n", number_of(descriptor));
  return result;
}
int ftruncate(int descriptor, off_t size) {
  const std::lock_guard lock(guard());
  const int result = static_cast<int>(syscall(SYS_ftruncate, descriptor, size));
  if (result == 0 && number_of(descriptor) > 0)
    say("cut %ld %ld\n", number_of(descriptor), static_cast<long>(size));
  return result;
}
int rename(const char* from, const char* to) {
  const std::lock_guard lock(guard());
  const int result = static_cast<int>(syscall(SYS_rename, from, to));
  if (result == 0 && below(to)) say("rename %s %s\n", from, to);
  return result;
}
int unlink(const char* path) {
  const std::lock_guard lock(guard());
  return said(syscall(SYS_unlink, path), "unlink", path);
}
int remove(const char* path) {
  static auto* const real = next<int(const char*)>("remove");
  const std::lock_guard lock(guard());
  return said(real(path), "unlink", path);
}
int mkdir(const char* path, mode_t mode) {
  const std::lock_guard lock(guard());
  return said(syscall(SYS_mkdir, path, mode), "mkdir", path);
}
// With large files these are the same.
int open64(const char*, int, ...) __attribute__((alias("open")));
FILE* fopen64(const char*, const char*) __attribute__((alias("fopen")));
ssize_t pwrite64(int, const void*, size_t, off_t) __attribute__((alias("pwrite")));
int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));
}
