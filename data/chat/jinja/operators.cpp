#include "data/chat/jinja/operators.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/chat/jinja/python_text.h"

namespace focus::jinja {
namespace {

std::string_view symbol(Op op) {
  static constexpr std::array kSymbols = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<std::size_t>(op)];
}

[[noreturn]] void too_large(Op op) {
  refuse("the result of '{}' does not fit in 64 bits", symbol(op));
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (a == INT64_MIN && b == -1) too_large(Op::floor_divide);
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
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
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, factor, &result))
      too_large(Op::power);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(factor, factor, &factor)) too_large(Op::power);
  }
  return Value::integer(result);
}

Value integer_arithmetic(Op op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool over = false;
  switch (op) {
    case Op::add:
      over = __builtin_add_overflow(a, b, &result);
      break;
    case Op::subtract:
      over = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::multiply:
      over = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::power:
      return integer_power(a, b);
    default:
      if (b == 0) refuse("division by zero");
      if (op == Op::divide) return Value::real(static_cast<double>(a) / static_cast<double>(b));
      if (op == Op::floor_divide)
        result = floor_quotient(a, b);
      else
        result = b == -1 ? 0 : a - floor_quotient(a, b) * b;
  }
  if (over) too_large(op);
  return Value::integer(result);
}

Value real_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::add:
      return Value::real(a + b);
    case Op::subtract:
      return Value::real(a - b);
    case Op::multiply:
      return Value::real(a * b);
    case Op::power: {
      const double result = std::pow(a, b);
      if (a == 0 && b < 0) refuse("0 has no negative power");
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
        refuse("the power of a negative number is complex");
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) too_large(op);
      return Value::real(result);
    }
    default:
      break;
  }
  if (b == 0) refuse("division by zero");
  if (op == Op::divide) return Value::real(a / b);
  return Value::real(op == Op::modulo ? floor_remainder(a, b) : floor_real_quotient(a, b));
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
    const std::size_t begin = begins[static_cast<std::size_t>(i)];
    result.append(text, begin, character_size(text, begin));
  });
  return Value::string(budget, std::move(result));
}

Value sliced_range(const Range& range, const Indices& slice) {
  std::int64_t taken = 0, step = 0;
  slice.each([&](std::int64_t) { ++taken; });
  if (__builtin_mul_overflow(range.step, slice.step, &step)) too_large(Op::multiply);
  return Value::range({range.at(slice.first), range.at(slice.end), step, taken});
}

}  // namespace

Value arithmetic(Budget& budget, Op op, const Value& a, const Value& b) {
  if (!(op == Op::modulo && a.is(Kind::string)))
    for (const Value* value : {&a, &b}) value->require_defined();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral())
      return integer_arithmetic(op, a.as_integer(), b.as_integer());
    return real_arithmetic(op, a.as_real(), b.as_real());
  }
  if (op == Op::add && a.kind() == b.kind() && repeats(a)) return joined(budget, a, b);
  if (op == Op::multiply && repeats(a) && b.is_integral())
    return repeated(budget, a, b.as_integer());
  if (op == Op::multiply && a.is_integral() && repeats(b))
    return repeated(budget, b, a.as_integer());
  if (op == Op::modulo && a.is(Kind::string)) return percent_format(budget, a.as_string(), b);
  refuse("'{}' is not defined for a {} and a {}", symbol(op), type_name(a), type_name(b));
}

Value negated(const Value& value, bool negative) {
  value.require_defined();
  if (!value.is_number()) refuse("a {} cannot have a sign", type_name(value));
  if (value.is(Kind::real)) return Value::real(negative ? -value.as_real() : value.as_real());
  return integer_arithmetic(negative ? Op::subtract : Op::add, 0, value.as_integer());
}

bool compared(Budget& budget, Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::eq:
      return equal(budget, a, b);
    case Comparison::ne:
      return !equal(budget, a, b);
    case Comparison::lt:
      return less(budget, a, b);
    case Comparison::gt:
      return less(budget, b, a);
    case Comparison::le:
    case Comparison::ge: {
      const bool below = comparison == Comparison::le ? less(budget, a, b) : less(budget, b, a);
      return below || equal(budget, a, b);
    }
    case Comparison::in:
      return contains(budget, b, a);
    default:
      return !contains(budget, b, a);
  }
}

Value sliced(Budget& budget, const Value& object, const std::vector<Value>& parts) {
  if (!repeats(object) && !object.is(Kind::range))
    refuse("a {} cannot be sliced", type_name(object));
  const Indices slice = indices(length(budget, object), parts);
  if (object.is(Kind::string)) return sliced_text(budget, object.as_string(), slice);
  if (object.is(Kind::range)) return sliced_range(object.as_range(), slice);
  std::vector<Value> items;
  slice.each(
      [&](std::int64_t i) { items.push_back(object.as_items()[static_cast<std::size_t>(i)]); });
  return Value::sequence(budget, object.kind(), std::move(items));
}

}  // namespace focus::jinja
