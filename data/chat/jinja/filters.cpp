#include <charconv>
#include <cmath>
#include <cstdlib>

#include "data/chat/jinja/function.h"
#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/operators.h"
#include "data/chat/jinja/python_text.h"

// Filters of numbers and of any value: conversions, rounding, JSON.
namespace focus::jinja {
namespace {

/// What Python's int() and float() read: blanks around and underscores between digits may be.
std::optional<std::string> number_text(std::string_view text) {
  text = strip(text, true, true);
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] == '_' && !(i > 0 && digit(i - 1) && digit(i + 1))) return std::nullopt;
    if (text[i] != '_') result += text[i];
  }
  if (result.starts_with('+') && !result.starts_with("+-") && !result.starts_with("++"))
    result.erase(0, 1);
  return result.empty() ? std::nullopt : std::optional(result);
}

std::optional<double> read_real(std::string_view text) {
  const auto plain = number_text(text);
  if (!plain) return std::nullopt;
  const std::string low = lower(*plain);
  const std::string_view unsigned_part = std::string_view(low).substr(low[0] == '-' ? 1 : 0);
  const bool words =
      unsigned_part == "inf" || unsigned_part == "infinity" || unsigned_part == "nan";
  if (!words && low.find_first_not_of("0123456789.e+-") != low.npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(low.c_str(), &end);
  return *end == '\0' ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> read_integer(std::string_view text, std::int64_t base) {
  const auto plain = number_text(text);
  if (!plain || (base != 2 && base != 8 && base != 10 && base != 16)) return std::nullopt;
  std::string digits = *plain;
  const std::size_t sign = digits[0] == '-' ? 1 : 0;
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : "0b";
  if (base != 10 && lower(digits.substr(sign, 2)) == prefix) digits.erase(sign, 2);
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value, static_cast<int>(base));
  if (read.ec == std::errc::result_out_of_range && read.ptr == end)
    refuse("the number {} does not fit in 64 bits", digits.substr(0, 40));
  return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

Value int_filter(const Call& call) {
  const Value& value = call.self;
  call.self.require_defined();
  if (value.is_integral()) return Value::integer(value.as_integer());
  std::optional<double> real;
  if (value.is(Kind::real)) real = value.as_real();
  if (value.is(Kind::string)) {
    if (const auto whole = read_integer(value.as_string(), call.integer(1, 10)))
      return Value::integer(*whole);
    real = read_real(value.as_string());
  }
  if (!real || !std::isfinite(*real)) return call.has(0) ? call.at(0) : Value::integer(0);
  if (!(std::abs(*real) < 0x1p63)) refuse("the number {} does not fit in 64 bits", *real);
  return Value::integer(static_cast<std::int64_t>(*real));
}

Value float_filter(const Call& call) {
  const Value& value = call.self;
  call.self.require_defined();
  if (value.is_number()) return Value::real(value.as_real());
  if (value.is(Kind::string))
    if (const auto real = read_real(value.as_string())) return Value::real(*real);
  return call.has(0) ? call.at(0) : Value::real(0);
}

/// To that many decimal places, ties to even as the exact binary number lies; whole numbers stay.
Value rounded(const Value& value, std::int64_t precision) {
  if (value.is_integral() && precision >= 0) return Value::integer(value.as_integer());
  if (precision < 0 || precision > 300 || value.is_integral())
    refuse("round to {} places is not supported", precision);
  if (!std::isfinite(value.as_real())) return value;
  return Value::real(std::stod(fmt::format("{:.{}f}", value.as_real(), precision)));
}

Value round_filter(const Call& call) {
  const Value& value = call.self;
  const std::string method = call.has(1) ? call.string(1) : "common";
  const std::int64_t precision = call.integer(0);
  call.self.require_defined();
  if (!value.is_number()) refuse("round needs a number, not {}", type_name(value));
  if (method == "common") return rounded(value, precision);
  if (method != "ceil" && method != "floor") refuse("round method '{}' is not supported", method);
  if (precision < 0 || precision > 18) refuse("round to {} places is not supported", precision);
  const double scale = std::pow(10.0, static_cast<double>(precision)), x = value.as_real() * scale;
  return Value::real((method == "ceil" ? std::ceil(x) : std::floor(x)) / scale);
}

Value tojson(const Call& call) {
  JsonStyle style{.ensure_ascii = call.flag(0), .sort_keys = call.flag(3), .indent = {}};
  if (call.given(1)) {
    if (call.at(1).is(Kind::string)) {
      style.indent = call.string(1);
    } else {
      const std::int64_t width = std::max<std::int64_t>(call.integer(1), 0);
      if (width > 1000) refuse("tojson with indent {} is not supported", width);
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
    style.between_items = std::string(1, ',');
  }
  if (call.given(2)) {
    const std::vector<Value> both = iterate(call.budget, call.at(2));
    if (both.size() != 2 || !both[0].is(Kind::string) || !both[1].is(Kind::string))
      refuse("tojson needs two strings as separators");
    style.between_items = both[0].as_string();
    style.after_key = both[1].as_string();
  }
  return Value::string(call.budget, to_json(call.budget, call.self, style));
}

Value default_filter(const Call& call) {
  if (!call.self.is_undefined() && !(call.flag(1) && !truth(call.self))) return call.self;
  return call.has(0) ? call.at(0) : Value::constant("");
}

Value attr(const Call& call) {
  if (call.self.is(Kind::mapping) && find_method(call.self, call.string(0)) == nullptr)
    return Value::undefined(fmt::format("a dict has no attribute '{}'", call.string(0)));
  return call.in.attribute(call.self, call.at(0));
}

constexpr Definition kNumberFilters[] = {
    {"abs", "",
     [](const Call& c) { return negated(c.self, c.self.is_number() && c.self.as_real() < 0); }},
    {"attr", "name", attr},
    {"d", "default_value? boolean?", default_filter},
    {"default", "default_value? boolean?", default_filter},
    {"float", "default?", float_filter},
    {"int", "default? base?", int_filter},
    {"round", "precision? method?", round_filter},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", tojson},
};

}  // namespace

std::span<const Definition> number_filters() { return kNumberFilters; }

}  // namespace focus::jinja
