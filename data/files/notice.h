#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace focus {

/// Tells on stderr, once in a process, what was decided where two statements about a model differ
/// or where something is passed over: a line that names the file, both statements and which one
/// holds. A warning of the log, which --log-level silences.
void say_notice(const std::string& line);

template <class... Arguments>
void notice(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say_notice(fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace focus
