#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

namespace focus::jinja {
namespace {

constexpr int kMostWidth = 10000;

struct Spec {
  bool left = false, zero = false, plus = false, blank = false;
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
    for (bool flags = true; flags;) {
      const char c = take();
      if (c == '-')
        spec.left = true;
      else if (c == '0')
        spec.zero = true;
      else if (c == '+')
        spec.plus = true;
      else if (c == ' ')
        spec.blank = true;
      else
        flags = false;
    }
    --at_;
    spec.width = number();
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = number();
    }
    spec.kind = take();
    if (spec.kind == '%') return "%";
    return padded(spec, text_of(spec, value != nullptr ? *value : next()));
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

  std::string signed_text(const Spec& spec, bool negative, std::string digits) const {
    const char sign = negative ? '-' : spec.plus ? '+' : ' ';
    if (negative || spec.plus || spec.blank) digits.insert(digits.begin(), sign);
    return digits;
  }

  std::string text_of(const Spec& spec, const Value& value) {
    const std::string_view kinds =
        "sr"
        "diu"
        "xXo"
        "feEgGF"
        "c";
    const std::size_t kind = kinds.find(spec.kind);
    if (kind == kinds.npos) refuse("'%{}' is not supported", spec.kind);
    if (kind < 2) {
      std::string text = spec.kind == 's' ? to_text(budget_, value) : to_repr(budget_, value);
      if (spec.precision >= 0) text.resize(byte_of(text, spec.precision));
      return text;
    }
    if (spec.kind == 'c' && value.is(Kind::string) && character_count(value.as_string()) == 1)
      return value.as_string();
    if (!value.is_number() || spec.kind == 'c')
      refuse("'%{}' needs a number, not {}", spec.kind, type_name(value));
    if (kind >= 8) return real(spec, value.as_real());
    if (kind >= 5 && !value.is_integral()) refuse("'%{}' needs an integer", spec.kind);
    if (!value.is_integral() && !(std::abs(value.as_real()) < 0x1p63))
      refuse("'%{}' needs an integer of 64 bits", spec.kind);
    const std::int64_t whole =
        value.is_integral() ? value.as_integer() : static_cast<std::int64_t>(value.as_real());
    const std::uint64_t size =
        whole < 0 ? -static_cast<std::uint64_t>(whole) : static_cast<std::uint64_t>(whole);
    std::string digits = spec.kind == 'x'   ? fmt::format("{:x}", size)
                         : spec.kind == 'X' ? fmt::format("{:X}", size)
                         : spec.kind == 'o' ? fmt::format("{:o}", size)
                                            : fmt::format("{}", size);
    const auto least = static_cast<std::size_t>(std::max(spec.precision, 0));
    if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
    return signed_text(spec, whole < 0, std::move(digits));
  }

  std::string real(const Spec& spec, double value) const {
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    const char kind = static_cast<char>(spec.kind | 0x20);
    std::string digits =
        std::isnan(value) ? "nan" : formatted_real(std::abs(value), precision, kind);
    if (kind != spec.kind) digits = upper(digits);
    return signed_text(spec, std::signbit(value) && !std::isnan(value), std::move(digits));
  }

  std::string padded(const Spec& spec, std::string text) const {
    const std::int64_t missing = spec.width - character_count(text);
    if (missing <= 0) return text;
    const auto blanks = static_cast<std::size_t>(missing);
    const bool zeros = spec.zero && !spec.left &&
                       std::string_view("src").find(spec.kind) == std::string_view::npos;
    if (spec.left) return text.append(blanks, ' ');
    const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
    return text.insert(zeros && sign ? 1 : 0, blanks, zeros ? '0' : ' ');
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
