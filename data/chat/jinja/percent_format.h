#pragma once

#include <string>

#include "data/chat/jinja/function.h"

namespace focus::jinja {

/// Python's `format % values`: %s %r %d %i %u %f %e %g %x %X %o %c %%, with flags, width and
/// precision. `values` is a tuple, a mapping for %(name)s, or one value.
Value percent_format(Budget& budget, const std::string& format, const Value& values);

/// str.format() of {} {0} {name}, without attributes and format specifications.
Value brace_format(Budget& budget, const std::string& format, const Arguments& arguments);

}  // namespace focus::jinja
