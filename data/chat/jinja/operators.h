#pragma once

#include <cstdint>
#include <string>

#include "data/chat/jinja/function.h"

namespace focus::jinja {

enum class Op : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

/// Python's operators.
Value arithmetic(Budget& budget, Op op, const Value& a, const Value& b);
Value negated(const Value& value, bool negative);
bool compared(Budget& budget, Comparison comparison, const Value& a, const Value& b);
/// Python's slice of a text, list, tuple or range. `parts`: start, stop and step, which may be
/// None.
Value sliced(Budget& budget, const Value& object, const std::vector<Value>& parts);
/// Python's `format % values`: %s %r %d %i %u %f %e %g %x %X %o %c %%, with flags, width and
/// precision. `values` is a tuple, a mapping for %(name)s, or one value.
Value percent_format(Budget& budget, const std::string& format, const Value& values);
/// str.format() of {} {0} {name}, without attributes and format specifications.
Value brace_format(Budget& budget, const std::string& format, const Arguments& arguments);

}  // namespace focus::jinja
