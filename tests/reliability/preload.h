#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

#include <cstring>

// Shared by the libraries that are loaded before the C library.
namespace {

/// The C library's own.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool lies_below(const char* path, const char* folder) {
  return path != nullptr && strncmp(path, folder, strlen(folder)) == 0;
}

/// The last argument of open(), where it has one.
mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace
