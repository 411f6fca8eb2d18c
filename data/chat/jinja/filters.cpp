#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "data/chat/jinja/filter_table.h"
#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/json_text.h"
#include "data/chat/jinja/percent_format.h"
#include "data/chat/jinja/python_text.h"

// Filters of one value: texts, numbers, JSON. Those of sequences are in sequence_filters.cpp.
namespace focus::jinja {
namespace {

template <std::string (*Map)(std::string_view)>
Value map_text(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("a filter", arguments, {});
  const std::string text = to_text(in.budget(), value);
  in.budget().scan(8 * text.size());
  return Value::string(in.budget(), Map(text));
}

/// Jinja's own title(): words begin after blanks, '-' and opening brackets, and a word's first
/// character is upper.
std::string title_words(std::string_view text) {
  std::string result, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const std::size_t first = character_size(word, 0);
    result += upper(std::string_view(word).substr(0, first)) +
              lower(std::string_view(word).substr(first));
    word.clear();
  };
  bool between = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = character_size(text, i);
    const char32_t c = character_at(text, i);
    const bool separates = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (separates != between) flush();
    between = separates;
    word += text.substr(i, size);
    i += size;
  }
  flush();
  return result;
}

Value trim(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const std::string text = to_text(in.budget(), value);
  if (!bound.given(0)) return Value::string(in.budget(), std::string(strip(text, true, true)));
  const std::string_view chars = bound.string(0);
  in.budget().scan(text.size() * (1 + chars.size() / 8));
  return Value::string(in.budget(), std::string(strip(text, true, true, &chars)));
}

Value replace_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string text = to_text(in.budget(), value);
  in.budget().scan(text.size());
  return Value::string(
      in.budget(),
      replace(text, to_text(in.budget(), bound.at(0)), to_text(in.budget(), bound.at(1)),
              bound.given(2) ? bound.integer(2, -1) : -1, in.budget().limits().bytes));
}

Value string_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return value.is(Kind::string) ? value : Value::string(in.budget(), to_text(in.budget(), value));
}

/// Without autoescape a safe text is a text.
Value safe(Interpreter& in, const Value& value, const Arguments& arguments) {
  return string_filter(in, value, arguments);
}

Value default_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && !(bound.flag(1, false) && !truth(value))) return value;
  return bound.has(0) ? bound.at(0) : Value::constant("");
}

Value indent(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (value.is_undefined()) refuse("{}", value.undefined_message());
  if (!value.is(Kind::string)) refuse("indent needs a string, not {}", type_name(value));
  std::string by(4, ' ');
  if (bound.has(0) && bound.at(0).is(Kind::string)) {
    by = bound.string(0);
  } else if (bound.has(0)) {
    const std::int64_t width = std::max<std::int64_t>(bound.integer(0, 4), 0);
    if (width > 10000) refuse("indent by {} spaces is not supported", width);
    by.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool blank = bound.flag(2, false);
  const std::string text = value.as_string() + "\n";
  std::string result = bound.flag(1, false) ? by : "";
  bool first = true;
  for (const std::string_view line : split_lines(text)) {
    in.budget().make(by.size() + line.size() + 1);
    if (!first) (result += '\n') += line.empty() && !blank ? "" : by;
    result += line;
    first = false;
  }
  return Value::string(in.budget(), std::move(result));
}

Value format_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const std::string format = to_text(in.budget(), value);
  if (arguments.named.empty())
    return percent_format(in.budget(), format, Value::tuple(in.budget(), arguments.positional));
  if (!arguments.positional.empty()) refuse("format() takes named or positional values, not both");
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [name, item] : arguments.named)
    insert(in.budget(), items, Value::string(in.budget(), name), item);
  return percent_format(in.budget(), format, Value::mapping(in.budget(), std::move(items)));
}

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

Value truncated(double value) {
  if (!(std::abs(value) < 0x1p63)) refuse("the number {} does not fit in 64 bits", value);
  return Value::integer(static_cast<std::int64_t>(value));
}

Value int_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  const Value otherwise = bound.has(0) ? bound.at(0) : Value::integer(0);
  if (value.is_undefined()) refuse("{}", value.undefined_message());
  if (value.is_integral()) return Value::integer(value.as_integer());
  std::optional<double> real;
  if (value.is(Kind::real)) real = value.as_real();
  if (value.is(Kind::string)) {
    if (const auto whole = read_integer(value.as_string(), bound.integer(1, 10)))
      return Value::integer(*whole);
    real = read_real(value.as_string());
  }
  return real && std::isfinite(*real) ? truncated(*real) : otherwise;
}

Value float_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (value.is_undefined()) refuse("{}", value.undefined_message());
  if (value.is_number()) return Value::real(value.as_real());
  if (value.is(Kind::string))
    if (const auto real = read_real(value.as_string())) return Value::real(*real);
  return bound.has(0) ? bound.at(0) : Value::real(0);
}

Value absolute(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  const bool negative = value.is_number() && value.as_real() < 0;
  return negated(value, negative);
}

/// To that many decimal places, ties to even as the exact binary number lies; whole numbers stay.
Value rounded(const Value& value, std::int64_t precision) {
  if (value.is_integral() && precision >= 0) return Value::integer(value.as_integer());
  if (precision < 0 || precision > 300 || value.is_integral())
    refuse("round to {} places is not supported", precision);
  if (!std::isfinite(value.as_real())) return value;
  const std::string text = formatted_real(value.as_real(), static_cast<int>(precision), 'f');
  return Value::real(std::strtod(text.c_str(), nullptr));
}

Value round_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::string method = bound.has(1) ? bound.string(1) : "common";
  const std::int64_t precision = bound.integer(0, 0);
  if (value.is_undefined()) refuse("{}", value.undefined_message());
  if (!value.is_number()) refuse("round needs a number, not {}", type_name(value));
  if (method == "common") return rounded(value, precision);
  if (method != "ceil" && method != "floor") refuse("round method '{}' is not supported", method);
  if (precision < 0 || precision > 18) refuse("round to {} places is not supported", precision);
  const double scale = std::pow(10.0, static_cast<double>(precision)), x = value.as_real() * scale;
  return Value::real((method == "ceil" ? std::ceil(x) : std::floor(x)) / scale);
}

Value tojson(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{
      .ensure_ascii = bound.flag(0, false), .sort_keys = bound.flag(3, false), .indent = {}};
  if (bound.given(1)) {
    const std::int64_t width = bound.at(1).is(Kind::string) ? 0 : bound.integer(1, 0);
    if (width > 1000) refuse("tojson with indent {} is not supported", width);
    style.indent =
        bound.at(1).is(Kind::string)
            ? bound.string(1)
            : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    style.between_items = std::string(1, ',');
  }
  if (bound.given(2)) {
    const std::vector<Value> both = iterate(in.budget(), bound.at(2));
    if (both.size() != 2 || !both[0].is(Kind::string) || !both[1].is(Kind::string))
      refuse("tojson needs two strings as separators");
    style.between_items = both[0].as_string();
    style.after_key = both[1].as_string();
  }
  return Value::string(in.budget(), to_json(in.budget(), value, style));
}

Value attr(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  if (value.is(Kind::mapping) && find_method(value, bound.string(0)) == nullptr)
    return Value::undefined(fmt::format("a dict has no attribute '{}'", bound.string(0)));
  return in.attribute(value, bound.at(0));
}

Value center(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  const Value text = Value::string(in.budget(), to_text(in.budget(), value));
  const Arguments width{{Value::integer(bound.integer(0, 80))}, {}};
  return find_method(text, "center")(in, text, width);
}

constexpr std::array<std::string_view, 14> kLeftOut = {
    "e",     "escape",    "filesizeformat", "forceescape", "groupby", "pprint",    "random",
    "slice", "striptags", "truncate",       "urlencode",   "urlize",  "wordcount", "wordwrap"};

const FilterTable& own_filters() {
  static const FilterTable kFilters = {
      {"abs", absolute},
      {"attr", attr},
      {"capitalize", map_text<capitalize>},
      {"center", center},
      {"d", default_filter},
      {"default", default_filter},
      {"float", float_filter},
      {"format", format_filter},
      {"indent", indent},
      {"int", int_filter},
      {"lower", map_text<lower>},
      {"replace", replace_filter},
      {"round", round_filter},
      {"safe", safe},
      {"string", string_filter},
      {"title", map_text<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"upper", map_text<upper>},
  };
  return kFilters;
}

}  // namespace

Function::Body find_filter(std::string_view name) {
  for (const FilterTable* table : {&own_filters(), &sequence_filters()})
    if (const auto found = table->find(name); found != table->end()) return found->second;
  return nullptr;
}

bool is_known_filter(std::string_view name) {
  return name == "xmlattr" || std::ranges::find(kLeftOut, name) != kLeftOut.end();
}

}  // namespace focus::jinja
