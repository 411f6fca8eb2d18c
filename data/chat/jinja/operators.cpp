#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "data/chat/jinja/function.h"
#include "data/chat/jinja/python_text.h"

namespace focus::jinja {
namespace {

[[noreturn]] void too_large(std::string_view op) {
  refuse("the result of '{}' does not fit in 64 bits", op);
}

double floor_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

/// As CPython: by way of the remainder, so that both fit together.
double floor_real_quotient(double a, double b) {
  const double whole = (a - floor_remainder(a, b)) / b;
  if (whole == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(whole);
  return whole - down > 0.5 ? down + 1 : down;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) refuse("0 has no negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  // Squares: at most 63 of them, since of a base above 1 any further one overflows.
  for (std::int64_t factor = base; exponent > 0;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, factor, &result)) too_large("**");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(factor, factor, &factor)) too_large("**");
  }
  return Value::integer(result);
}

Value integer_arithmetic(std::string_view op, std::int64_t a, std::int64_t b) {
  __extension__ using Wide = __int128;
  const auto value_of = [&](Wide result) {
    if (result < INT64_MIN || result > INT64_MAX) too_large(op);
    return Value::integer(static_cast<std::int64_t>(result));
  };
  if (op == "**") return integer_power(a, b);
  if (op == "+") return value_of(Wide{a} + b);
  if (op == "-") return value_of(Wide{a} - b);
  if (op == "*") return value_of(Wide{a} * b);
  if (b == 0) refuse("division by zero");
  if (op == "/") return Value::real(static_cast<double>(a) / static_cast<double>(b));
  const Wide rest = (Wide{a} % b + b) % b;  // with b's sign
  return value_of(op == "%" ? rest : (a - rest) / b);
}

Value real_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "**") {
    const double result = std::pow(a, b);
    if (a == 0 && b < 0) refuse("0 has no negative power");
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
      refuse("the power of a negative number is complex");
    if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) too_large(op);
    return Value::real(result);
  }
  if (b == 0) refuse("division by zero");
  if (op == "/") return Value::real(a / b);
  return Value::real(op == "%" ? floor_remainder(a, b) : floor_real_quotient(a, b));
}

Value repeated(Budget& budget, const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  const std::size_t size = value.size() * (value.is(Kind::string) ? 1 : sizeof(Value));
  if (size > 0 && static_cast<std::size_t>(times) > budget.limits().bytes / size)
    budget.make(budget.limits().bytes + 1);
  budget.make(size * static_cast<std::size_t>(times));
  if (size == 0) return value;
  if (value.is(Kind::string)) {
    std::string text;
    for (; times > 0; --times) text += value.as_string();
    return Value::string(budget, std::move(text));
  }
  std::vector<Value> items;
  for (; times > 0; --times)
    items.insert(items.end(), value.as_items().begin(), value.as_items().end());
  return Value::sequence(budget, value.kind(), std::move(items));
}

Value joined(Budget& budget, const Value& a, const Value& b) {
  if (a.is(Kind::string)) {
    budget.make(a.as_string().size() + b.as_string().size());
    return Value::string(budget, a.as_string() + b.as_string());
  }
  budget.make(sizeof(Value) * (a.as_items().size() + b.as_items().size()));
  std::vector<Value> items = a.as_items();
  items.insert(items.end(), b.as_items().begin(), b.as_items().end());
  return Value::sequence(budget, a.kind(), std::move(items));
}

bool repeats(const Value& value) { return value.is(Kind::string) || value.is_sequence(); }

/// A slice of `count` items as Python's slice.indices() gives it: from `first`, `end` excluded.
struct Indices {
  std::int64_t first, end, step;

  template <class Take>
  void each(Take&& take) const {
    if (step > 0)
      for (std::int64_t i = first; i<end; i = step> end - i ? end : i + step) take(i);
    else
      for (std::int64_t i = first; i > end; i = step < end - i ? end : i + step) take(i);
  }
};

Indices indices(std::int64_t count, const std::vector<Value>& parts) {
  for (const Value& part : parts)
    if (!part.is_integral() && !part.is(Kind::none))
      refuse("a slice needs integers, not {}", type_name(part));
  const std::int64_t step = parts[2].is(Kind::none) ? 1 : parts[2].as_integer();
  if (step == 0) refuse("a slice's step must not be 0");
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
  const auto place = [&](const Value& part, std::int64_t otherwise) {
    if (part.is(Kind::none)) return otherwise;
    const std::int64_t at = part.as_integer();
    return std::clamp(at < 0 ? at + count : at, low, high);
  };
  return {place(parts[0], step > 0 ? low : high), place(parts[1], step > 0 ? high : low), step};
}

Value sliced_text(Budget& budget, const std::string& text, const Indices& slice) {
  // Where each character begins, since UTF-8 has them of several sizes.
  budget.make(text.size() * sizeof(std::uint32_t));
  std::vector<std::uint32_t> begins;
  for (std::size_t i = 0; i < text.size(); i += character_size(text, i))
    begins.push_back(static_cast<std::uint32_t>(i));
  std::string result;
  slice.each([&](std::int64_t i) {
    const std::size_t begin = begins[i];
    result.append(text, begin, character_size(text, begin));
  });
  return Value::string(budget, std::move(result));
}

Value sliced_range(const Range& range, const Indices& slice) {
  std::int64_t taken = 0, step = 0;
  slice.each([&](std::int64_t) { ++taken; });
  if (__builtin_mul_overflow(range.step, slice.step, &step)) too_large("*");
  return Value::range({range.at(slice.first), range.at(slice.end), step, taken});
}

/// Takes that many bytes off the beginning, or all that are left.
std::string_view take(std::string_view& rest, std::size_t size) {
  const std::string_view part = rest.substr(0, size);
  rest.remove_prefix(part.size());
  return part;
}

struct Spec {
  std::string_view flags;  // of "-0+ "
  int width = 0, precision = -1;
  char kind = 's';
};

std::string padded(const Spec& spec, std::string text) {
  const std::int64_t missing = spec.width - character_count(text);
  if (missing <= 0) return text;
  const bool left = spec.flags.find('-') != npos;
  return text.insert(left ? text.size() : 0, static_cast<std::size_t>(missing), ' ');
}

/// A number as C prints it, with the sign, flags and zeros that C leaves out of some kinds.
template <class Number>
std::string printed(const Spec& spec, const std::string& size, Number number, bool negative) {
  const auto has = [&](char flag) { return spec.flags.find(flag) != npos; };
  const char kind = spec.kind == 'd' || spec.kind == 'i' ? 'u' : spec.kind;
  const std::string format = "%.*" + size + kind;
  const int precision = spec.precision >= 0 ? spec.precision : size.empty() ? 6 : 1;
  std::string digits(static_cast<std::size_t>(precision) + 400, '\0');
  digits.resize(std::snprintf(digits.data(), digits.size(), format.c_str(), precision, number));
  if (negative)
    digits.insert(0, 1, '-');
  else if (digits[0] != '-' && (has('+') || has(' ')))
    digits.insert(0, 1, has('+') ? '+' : ' ');
  const auto width = static_cast<std::size_t>(spec.width);
  if (has('0') && !has('-') && digits.size() < width)
    digits.insert(std::string_view("-+ ").find(digits[0]) == npos ? 0 : 1, width - digits.size(),
                  '0');
  return padded(spec, std::move(digits));
}

std::string converted(Budget& budget, const Spec& spec, const Value& value) {
  const char kind = spec.kind;
  if (std::string_view("srcdiuxXofeEgGF").find(kind) == npos)
    refuse("'%{}' is not supported", kind);
  if (kind == 's' || kind == 'r') {
    std::string text = kind == 's' ? to_text(budget, value) : to_repr(budget, value);
    if (spec.precision >= 0) text.resize(byte_of(text, spec.precision));
    return padded(spec, std::move(text));
  }
  if (kind == 'c' && value.is(Kind::string) && character_count(value.as_string()) == 1)
    return padded(spec, value.as_string());
  if (!value.is_number() || kind == 'c')
    refuse("'%{}' needs a number, not {}", kind, type_name(value));
  if (std::string_view("feEgGF").find(kind) != npos) {
    const double real = value.as_real();
    return printed(spec, "", std::isnan(real) ? std::abs(real) : real, false);
  }
  if (!value.is_integral() && std::string_view("diu").find(kind) == npos)
    refuse("'%{}' needs an integer", kind);
  if (!value.is_integral() && !(std::abs(value.as_real()) < 0x1p63))
    refuse("'%{}' needs an integer of 64 bits", kind);
  const std::int64_t whole =
      value.is_integral() ? value.as_integer() : static_cast<std::int64_t>(value.as_real());
  const auto size = static_cast<std::uint64_t>(whole);
  return printed(spec, "l", whole < 0 ? -size : size, whole < 0);
}

}  // namespace

Value arithmetic(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  if (op == "%" && a.is(Kind::string)) return percent_format(budget, a.as_string(), b);
  for (const Value* value : {&a, &b}) value->require_defined();
  if (a.is_integral() && b.is_integral())
    return integer_arithmetic(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return real_arithmetic(op, a.as_real(), b.as_real());
  if (op == "+" && a.kind() == b.kind() && repeats(a)) return joined(budget, a, b);
  if (op == "*" && repeats(a) && b.is_integral()) return repeated(budget, a, b.as_integer());
  if (op == "*" && a.is_integral() && repeats(b)) return repeated(budget, b, a.as_integer());
  refuse("'{}' is not defined for a {} and a {}", op, type_name(a), type_name(b));
}

Value negated(const Value& value, bool negative) {
  value.require_defined();
  if (!value.is_number()) refuse("a {} cannot have a sign", type_name(value));
  if (value.is(Kind::real)) return Value::real(negative ? -value.as_real() : value.as_real());
  return integer_arithmetic(negative ? "-" : "+", 0, value.as_integer());
}

bool compared(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  if (op == "in" || op == "not") return contains(budget, b, a) == (op == "in");
  if (op == "==" || op == "!=") return equal(budget, a, b) == (op == "==");
  const bool before = op[0] == '<' ? less(budget, a, b) : less(budget, b, a);
  return before || (op.size() == 2 && equal(budget, a, b));
}

Value sliced(Budget& budget, const Value& object, const std::vector<Value>& parts) {
  if (!repeats(object) && !object.is(Kind::range))
    refuse("a {} cannot be sliced", type_name(object));
  const Indices slice = indices(length(budget, object), parts);
  if (object.is(Kind::string)) return sliced_text(budget, object.as_string(), slice);
  if (object.is(Kind::range)) return sliced_range(object.as_range(), slice);
  std::vector<Value> items;
  slice.each([&](std::int64_t i) { items.push_back(object.as_items()[i]); });
  return Value::sequence(budget, object.kind(), std::move(items));
}

Value percent_format(Budget& budget, const std::string& format, const Value& values) {
  budget.scan(format.size());
  const std::size_t count = values.is(Kind::tuple) ? values.size() : 1;
  std::size_t used = 0;
  const auto next = [&]() -> const Value& {
    if (used >= count) refuse("'%' has fewer values than its format needs");
    return values.is(Kind::tuple) ? values.as_items()[used++] : (++used, values);
  };
  std::string_view rest = format;
  const auto named = [&]() -> const Value& {
    const std::size_t end = rest.find(')');
    if (end == npos || !values.is(Kind::mapping)) refuse("'%(name)' needs a mapping of values");
    const std::string name(take(rest, end + 1).substr(1, end - 1));
    const Value* const value = find(budget, values.as_mapping(), Value::string(budget, name));
    if (value == nullptr) refuse("'%' has no value named '{}'", name);
    return *value;
  };
  const auto number = [&] {
    constexpr int kMost = 10000;
    int value = 0;
    while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
      value = value * 10 + (take(rest, 1)[0] - '0');
      if (value > kMost) refuse("a width of '%' is above {}", kMost);
    }
    return value;
  };
  std::string result;
  while (!rest.empty()) {
    result += take(rest, rest.find('%'));
    if (take(rest, 1).empty()) break;
    const Value* value = rest.starts_with('(') ? &named() : nullptr;
    Spec spec{.flags = take(rest, rest.find_first_not_of("-0+ "))};
    spec.width = number();
    if (rest.starts_with('.')) {
      take(rest, 1);
      spec.precision = number();
    }
    if (rest.empty()) refuse("the format of '%' is incomplete");
    spec.kind = take(rest, 1)[0];
    result += spec.kind == '%' ? "%" : converted(budget, spec, value != nullptr ? *value : next());
    if (result.size() > budget.limits().output)
      refuse("'%' makes more than {} bytes", budget.limits().output);
  }
  // Python asks this only of values that have no items.
  const bool has_items = values.is(Kind::mapping) || values.is(Kind::list) ||
                         values.is(Kind::range) || values.is_undefined();
  if (!has_items && used < count) refuse("'%' has more values than its format needs");
  return Value::string(budget, std::move(result));
}

Value brace_format(Budget& budget, const std::string& format, const Arguments& arguments) {
  std::string result;
  std::size_t next = 0;
  for (std::string_view rest = format; !rest.empty();) {
    result += take(rest, rest.find_first_of("{}"));
    if (rest.empty()) break;
    const char c = take(rest, 1)[0];
    if (rest.starts_with(c)) {
      result += take(rest, 1);
      continue;
    }
    const std::size_t end = rest.find('}');
    if (c == '}' || end == npos) refuse("format() found a single '{}'", c);
    const std::string name(take(rest, end));
    take(rest, 1);
    if (name.find_first_of("{.[!:") != name.npos)
      refuse("format() of '{{{}}}' is not supported", name);
    if (const auto named = arguments.named.find(name); named != arguments.named.end()) {
      result += to_text(budget, named->second);
      continue;
    }
    const bool digits = name.size() < 6 && name.find_first_not_of("0123456789") == name.npos;
    if (!digits) refuse("format() has no argument '{}'", name);
    const std::size_t index = name.empty() ? next++ : std::strtoul(name.c_str(), nullptr, 10);
    if (index >= arguments.positional.size()) refuse("format() has no argument {}", index);
    result += to_text(budget, arguments.positional[index]);
    if (result.size() > budget.limits().output)
      refuse("format() makes more than {} bytes", budget.limits().output);
  }
  return Value::string(budget, std::move(result));
}

}  // namespace focus::jinja
