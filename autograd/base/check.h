#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace focus {

/// Throws std::invalid_argument with the formatted text unless `condition` holds. Always on: it is
/// cheap beside a matmul. The text names the op or file, what was wanted and what came.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]]
    throw std::invalid_argument(fmt::format(text, std::forward<Args>(args)...));
}

/// A problem of the world outside (a file, a disk, a run that went wrong): always thrown as
/// std::runtime_error, with one line of text that says what to do next.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace focus
