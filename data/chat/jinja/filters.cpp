#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <regex>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

// Filters but for those of texts: conversions, rounding, JSON, and what reads or makes lists.
namespace focus::jinja {
namespace {

/// A text in the form of a number for Python's int() or float(): blanks around it are taken off,
/// and the underscores between digits.
std::optional<std::string> number_text(std::string_view text, const std::regex& form) {
  constexpr std::size_t kMost = 1000;  // the library recurses for each character
  text = strip(text, true, true);
  if (text.size() > kMost) {
    if (text.find_first_not_of("0123456789abcdefABCDEFxX_+-.") != npos) return std::nullopt;
    refuse("a number of {} characters is too long", text.size());
  }
  if (!std::regex_match(text.begin(), text.end(), form)) return std::nullopt;
  std::string plain(text.substr(text.starts_with('+') ? 1 : 0));
  std::erase(plain, '_');
  return plain;
}

std::optional<double> read_real(std::string_view text) {
  static const std::regex kReal(
      R"([-+]?(((\d(_?\d)*)\.?|(\d(_?\d)*)?\.\d(_?\d)*)(e[-+]?\d(_?\d)*)?|inf|infinity|nan))",
      std::regex::icase);
  const auto plain = number_text(text, kReal);
  return plain ? std::optional(std::strtod(plain->c_str(), nullptr)) : std::nullopt;
}

std::optional<std::int64_t> read_integer(std::string_view text, std::int64_t base) {
  static const std::regex kInteger(R"([-+]?[\da-z](_?[\da-z])*)", std::regex::icase);
  const auto plain = number_text(text, kInteger);
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
  if (value.is_big()) return value;
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
  if (value.is_big() && precision >= 0) return value;
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

using Path = std::vector<Value>;

/// The parts of "a.b.0": names and, where they are digits, indices. Empty without an attribute.
Path path_of(const Call& call, const Value& attribute) {
  if (attribute.is(Kind::none)) return {};
  if (!attribute.is(Kind::string)) return {attribute};
  Path parts;
  for (const std::string_view part : split_at(attribute.as_string(), ".", -1, false)) {
    const bool index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    parts.push_back(index ? Value::integer(std::stoll(std::string(part))) : call.text(part));
  }
  return parts;
}

Path path_argument(const Call& call, std::size_t i) {
  return path_of(call, call.has(i) ? call.at(i) : Value::none());
}

/// item.path, with `otherwise` (may be null) for what is undefined on the way.
Value follow(const Call& call, Value item, const Path& path, const Value* otherwise = nullptr) {
  for (const Value& part : path) {
    item = call.in.item(item, part);
    if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
  }
  return item;
}

Value without_case(const Call& call, Value value) {
  if (!value.is(Kind::string)) return value;
  call.budget.scan(8 * value.as_string().size());
  return Value::string(call.budget, lower(value.as_string()));
}

/// The object's items behind a tuple of what they are compared by: their attributes at `paths`, or
/// themselves. Case counts only if argument `case_sensitive` says.
Pairs keyed_items(const Call& call, const std::vector<Path>& paths, std::size_t case_sensitive) {
  Pairs items;
  for (const Value& item : iterate(call.budget, call.self)) {
    std::vector<Value> keys;
    for (const Path& path : paths) {
      Value key = follow(call, item, path);
      keys.push_back(call.flag(case_sensitive) ? key : without_case(call, std::move(key)));
    }
    items.emplace_back(Value::tuple(call.budget, std::move(keys)), item);
  }
  return items;
}

Value items_filter(const Call& call) {
  if (call.self.is_undefined()) return Value::iterator(call.budget, {});
  if (!call.self.is(Kind::mapping)) refuse("items needs a mapping, not {}", type_name(call.self));
  return Value::iterator(call.budget, view_of(call.budget, call.self, Kind::items).as_items());
}

Value first_filter(const Call& call) {
  if (call.self.is(Kind::iterator)) {
    std::deque<Value>& rest = call.self.as_iterator();
    if (!rest.empty()) {
      const Value first = std::move(rest.front());
      rest.pop_front();
      return first;
    }
  } else if (const auto items = iterate(call.budget, call.self); !items.empty()) {
    return items.front();
  }
  return Value::undefined("the first item of an empty sequence is undefined");
}

Value last_filter(const Call& call) {
  if (call.self.is(Kind::iterator))
    refuse("a generator has no last item; '|list' converts it to a list");
  const std::vector<Value> items = iterate(call.budget, call.self);
  return items.empty() ? Value::undefined("the last item of an empty sequence is undefined")
                       : items.back();
}

Value reverse_filter(const Call& call) {
  if (call.self.is(Kind::string))
    return sliced(call.budget, call.self, {Value::none(), Value::none(), Value::integer(-1)});
  std::vector<Value> items = iterate(call.budget, call.self);
  std::ranges::reverse(items);
  // Python cannot reverse an iterator in place: the result is a list.
  if (call.self.is(Kind::iterator)) return Value::list(call.budget, std::move(items));
  return Value::iterator(call.budget, items);
}

Value join_filter(const Call& call) {
  const std::string between = call.has(0) ? to_text(call.budget, call.at(0)) : "";
  const Path path = path_argument(call, 1);
  std::string text;
  bool first = true;
  for (const Value& item : iterate(call.budget, call.self)) {
    if (!first) {
      call.budget.make(between.size());
      text += between;
    }
    text += to_text(call.budget, follow(call, item, path));
    first = false;
  }
  return Value::string(call.budget, std::move(text));
}

/// map('filter', ...), select('test', ...): the name at argument `i`, and what follows it.
std::pair<std::string, Arguments> named_call(const Call& call, std::size_t i, const char* what) {
  const auto& [positional, named] = call.arguments();
  if (!positional[i].is(Kind::string))
    refuse("{} takes a name, not {}", what, type_name(positional[i]));
  return {positional[i].as_string(),
          {{positional.begin() + static_cast<std::ptrdiff_t>(i) + 1, positional.end()}, named}};
}

Value map_filter(const Call& call) {
  static constexpr Definition kByAttribute = {
      "map", "attribute default?", [](const Call& c) {
        const Path path = path_of(c, c.at(0));
        std::vector<Value> results;
        for (const Value& item : iterate(c.budget, c.self))
          results.push_back(follow(c, item, path, c.given(1) ? &c.at(1) : nullptr));
        return Value::iterator(c.budget, results);
      }};
  if (!truth(call.self)) return Value::iterator(call.budget, {});
  if (call.arguments().positional.empty())
    return jinja::call(call.in, kByAttribute, call.self, call.arguments());
  const auto [name, arguments] = named_call(call, 0, "map");
  std::vector<Value> results;
  for (const Value& item : iterate(call.budget, call.self))
    results.push_back(jinja::call(call.in, known_filter(name), item, arguments));
  return Value::iterator(call.budget, results);
}

/// select, reject, selectattr, rejectattr.
template <bool Attribute, bool Wanted>
Value select_filter(const Call& call) {
  if (!truth(call.self)) return Value::iterator(call.budget, {});
  const std::size_t skipped = Attribute ? 1 : 0, given = call.arguments().positional.size();
  if (given < skipped) refuse("selectattr and rejectattr need the name of an attribute");
  const Path path = Attribute ? path_of(call, call.arguments().positional[0]) : Path();
  const auto [test, arguments] =
      given > skipped ? named_call(call, skipped, "select") : std::pair<std::string, Arguments>();
  std::vector<Value> results;
  for (const Value& item : iterate(call.budget, call.self)) {
    const Value key = follow(call, item, path);
    const Value held = test.empty() ? key : jinja::call(call.in, known_test(test), key, arguments);
    if (truth(held) == Wanted) results.push_back(item);
  }
  return Value::iterator(call.budget, results);
}

Value sorted(const Call& call, Pairs items, bool reverse) {
  // Equal ones keep their order also in reverse, as Python's do. A merge, since an order that is
  // none (NaN, lists that hold it) must do no harm.
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(call.budget, b.first, a.first) : less(call.budget, a.first, b.first);
  });
  std::vector<Value> result;
  for (auto& [key, item] : items) result.push_back(std::move(item));
  return Value::list(call.budget, std::move(result));
}

Value sort_filter(const Call& call) {
  std::vector<Path> paths;
  if (call.has(2) && call.at(2).is(Kind::string))
    for (const std::string_view part : split_at(call.string(2), ",", -1, false))
      paths.push_back(path_of(call, call.text(part)));
  else
    paths.push_back(path_argument(call, 2));
  return sorted(call, keyed_items(call, paths, 1), call.flag(0));
}

Value dictsort(const Call& call) {
  const std::string by = call.has(1) ? call.string(1) : "key";
  if (by != "key" && by != "value") refuse("dictsort by '{}', which is neither key nor value", by);
  call.self.require_defined();
  if (!call.self.is(Kind::mapping))
    refuse("dictsort needs a mapping, not {}", type_name(call.self));
  Pairs items;
  for (const auto& [key, item] : call.self.as_mapping()) {
    const Value& order = by == "key" ? key : item;
    items.emplace_back(
        Value::tuple(call.budget, {call.flag(0) ? order : without_case(call, order)}),
        Value::tuple(call.budget, {key, item}));
  }
  return sorted(call, std::move(items), call.flag(2));
}

Value unique(const Call& call) {
  std::vector<Value> results, keys;
  for (auto& [tuple, item] : keyed_items(call, {path_argument(call, 1)}, 0)) {
    const Value& key = tuple.as_items()[0];
    if (key.is(Kind::list) || key.is(Kind::mapping))
      refuse("unique cannot compare a {}", type_name(key));
    const auto same = [&](const Value& other) { return equal(call.budget, other, key); };
    if (std::ranges::any_of(keys, same)) continue;
    keys.push_back(key);
    results.push_back(std::move(item));
  }
  return Value::iterator(call.budget, results);
}

template <bool Largest>
Value extreme(const Call& call) {
  const Pairs items = keyed_items(call, {path_argument(call, 1)}, 0);
  if (items.empty())
    return Value::undefined("the largest or smallest item of an empty sequence is undefined");
  const auto* best = &items[0];
  for (const auto& item : std::span(items).subspan(1)) {
    const Value &a = item.first.as_items()[0], &b = best->first.as_items()[0];
    if (Largest ? less(call.budget, b, a) : less(call.budget, a, b)) best = &item;
  }
  return best->second;
}

Value sum(const Call& call) {
  const Path path = path_argument(call, 0);
  Value total = call.has(1) ? call.at(1) : Value::integer(0);
  if (total.is(Kind::string)) refuse("sum adds numbers, not strings");
  for (const Value& item : iterate(call.budget, call.self))
    total = arithmetic(call.budget, "+", total, follow(call, item, path));
  return total;
}

Value batch(const Call& call) {
  const std::int64_t count = call.integer(0);
  if (count < 1 || count > kMostRange) refuse("batch of {} items is not supported", count);
  std::vector<Value> results, line;
  const auto flush = [&] { results.push_back(Value::list(call.budget, std::exchange(line, {}))); };
  for (const Value& item : iterate(call.budget, call.self)) {
    if (std::ssize(line) == count) flush();
    line.push_back(item);
  }
  if (!line.empty()) {
    if (call.given(1)) line.resize(count, call.at(1));
    flush();
  }
  return Value::iterator(call.budget, results);
}

Value length_filter(const Call& call) { return Value::integer(length(call.budget, call.self)); }

constexpr Definition kFilters[] = {
    {"abs", "",
     [](const Call& c) { return negated(c.self, c.self.is_number() && c.self.as_real() < 0); }},
    {"attr", "name", attr},
    {"default d", "default_value? boolean?", default_filter},
    {"float", "default?", float_filter},
    {"int", "default? base?", int_filter},
    {"round", "precision? method?", round_filter},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", tojson},
    {"batch", "linecount fill_with?", batch},
    {"dictsort", "case_sensitive? by? reverse?", dictsort},
    {"first", "", first_filter},
    {"items", "", items_filter},
    {"join", "d? attribute?", join_filter},
    {"last", "", last_filter},
    {"length count", "", length_filter},
    {"list", "", [](const Call& c) { return Value::list(c.budget, iterate(c.budget, c.self)); }},
    {"map", "*", map_filter},
    {"max", "case_sensitive? attribute?", extreme<true>},
    {"min", "case_sensitive? attribute?", extreme<false>},
    {"reject", "*", select_filter<false, false>},
    {"rejectattr", "*", select_filter<true, false>},
    {"reverse", "", reverse_filter},
    {"select", "*", select_filter<false, true>},
    {"selectattr", "*", select_filter<true, true>},
    {"sort", "reverse? case_sensitive? attribute?", sort_filter},
    {"sum", "attribute? start?", sum},
    {"unique", "case_sensitive? attribute?", unique},
};

}  // namespace

std::span<const Definition> other_filters() { return kFilters; }

}  // namespace focus::jinja
