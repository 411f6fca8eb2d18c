#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "data/chat/jinja/operators.h"
#include "data/chat/jinja/python_text.h"

namespace focus::jinja {
namespace {

constexpr int kMostWidth = 10000;

struct Spec {
  std::string flags;  // of "-0+ "
  int width = 0, precision = -1;
  char kind = 's';
};

class PercentFormat {
 public:
  PercentFormat(Budget& budget, const std::string& format, const Value& values)
      : budget_(budget), format_(format), values_(values) {}

  std::string run() {
    std::string result;
    for (at_ = 0; at_ < format_.size();) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      result.append(format_, at_, percent - at_);
      at_ = percent;
      if (at_ < format_.size()) result += conversion();
      if (result.size() > budget_.limits().output)
        refuse("'%' makes more than {} bytes", budget_.limits().output);
    }
    // Python asks this only of values that have no items.
    const bool has_items = values_.is(Kind::mapping) || values_.is(Kind::list) ||
                           values_.is(Kind::range) || values_.is_undefined();
    if (!has_items && used_ < count()) refuse("'%' has more values than its format needs");
    return result;
  }

 private:
  std::size_t count() const { return values_.is(Kind::tuple) ? values_.as_items().size() : 1; }
  char take() {
    if (at_ >= format_.size()) refuse("the format of '%' is incomplete");
    return format_[at_++];
  }

  const Value& next() {
    if (used_ >= count()) refuse("'%' has fewer values than its format needs");
    const std::size_t i = used_++;
    return values_.is(Kind::tuple) ? values_.as_items()[i] : values_;
  }

  int number() {
    int value = 0;
    while (at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9') {
      value = value * 10 + (format_[at_++] - '0');
      if (value > kMostWidth) refuse("a width of '%' is above {}", kMostWidth);
    }
    return value;
  }

  std::string conversion() {
    ++at_;
    const Value* value = nullptr;
    if (at_ < format_.size() && format_[at_] == '(') value = &named();
    Spec spec;
    while (at_ < format_.size() && std::string_view("-0+ ").find(format_[at_]) != npos)
      spec.flags += format_[at_++];
    spec.width = number();
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = number();
    }
    spec.kind = take();
    if (spec.kind == '%') return "%";
    return converted(spec, value != nullptr ? *value : next());
  }

  const Value& named() {
    const std::size_t end = format_.find(')', at_);
    if (end == std::string::npos || !values_.is(Kind::mapping))
      refuse("'%(name)' needs a mapping of values");
    const Value name = Value::string(budget_, format_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    const Value* const value = find(budget_, values_.as_mapping(), name);
    if (value == nullptr) refuse("'%' has no value named '{}'", name.as_string());
    return *value;
  }

  std::string converted(const Spec& spec, const Value& value) {
    const char kind = spec.kind;
    if (std::string_view("srcdiuxXofeEgGF").find(kind) == npos)
      refuse("'%{}' is not supported", kind);
    if (kind == 's' || kind == 'r') {
      std::string text = kind == 's' ? to_text(budget_, value) : to_repr(budget_, value);
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

  /// A number as C prints it, with the sign, flags and zeros that C leaves out of some kinds.
  template <class Number>
  static std::string printed(const Spec& spec, const std::string& size, Number number,
                             bool negative) {
    const auto has = [&](char flag) { return spec.flags.find(flag) != npos; };
    const char kind = spec.kind == 'd' || spec.kind == 'i' ? 'u' : spec.kind;
    const std::string format = "%.*" + size + kind;
    const int precision = spec.precision >= 0 ? spec.precision : size.empty() ? 6 : 1;
    std::string digits(static_cast<std::size_t>(precision) + 400, '\0');
    digits.resize(static_cast<std::size_t>(
        std::snprintf(digits.data(), digits.size(), format.c_str(), precision, number)));
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

  static std::string padded(const Spec& spec, std::string text) {
    const std::int64_t missing = spec.width - character_count(text);
    if (missing <= 0) return text;
    const bool left = spec.flags.find('-') != npos;
    return text.insert(left ? text.size() : 0, static_cast<std::size_t>(missing), ' ');
  }

  Budget& budget_;
  const std::string& format_;
  const Value& values_;
  std::size_t at_ = 0, used_ = 0;
};

}  // namespace

Value percent_format(Budget& budget, const std::string& format, const Value& values) {
  budget.scan(format.size());
  return Value::string(budget, PercentFormat(budget, format, values).run());
}

Value brace_format(Budget& budget, const std::string& format, const Arguments& arguments) {
  std::string result;
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.size();) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      result += format[i++];
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      result += c;
      i += 2;
      continue;
    }
    const std::size_t end = format.find('}', i);
    if (c == '}' || end == std::string::npos) refuse("format() found a single '{}'", c);
    const std::string name = format.substr(i + 1, end - i - 1);
    i = end + 1;
    if (name.find_first_of("{.[!:") != name.npos)
      refuse("format() of '{{{}}}' is not supported", name);
    const auto named = std::ranges::find(arguments.named, name,
                                         [](const auto& argument) { return argument.first; });
    if (named != arguments.named.end()) {
      result += to_text(budget, named->second);
      continue;
    }
    const bool digits =
        !name.empty() && name.size() < 6 && name.find_first_not_of("0123456789") == name.npos;
    if (!name.empty() && !digits) refuse("format() has no argument '{}'", name);
    const std::size_t index = name.empty() ? next++ : std::strtoul(name.c_str(), nullptr, 10);
    if (index >= arguments.positional.size()) refuse("format() has no argument {}", index);
    result += to_text(budget, arguments.positional[index]);
    if (result.size() > budget.limits().output)
      refuse("format() makes more than {} bytes", budget.limits().output);
  }
  return Value::string(budget, std::move(result));
}

}  // namespace focus::jinja
