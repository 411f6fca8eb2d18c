#pragma once

#include <fmt/format.h>

#include <string>

#include "tests/support/cli.h"

namespace focus {

#ifdef FOCUS_SANITIZED
/// The sanitizers want terabytes of addresses and pipes of their own: no limit can be kept.
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// A launcher: a shell that sets a limit and then becomes the command.
inline Words limited(const std::string& limit) {
  return {"/bin/sh", "-c", limit + R"(; exec "$@")", "sh"};
}

/// A launcher: no more addresses than so many kilobytes, but with sanitizers.
inline Words in_address_space(int kilobytes) {
  return kSanitized ? Words{} : limited(fmt::format("ulimit -v {}", kilobytes));
}

}  // namespace focus
