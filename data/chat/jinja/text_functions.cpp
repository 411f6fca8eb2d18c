#include <algorithm>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

// Python's methods of strings, and the filters of strings.
namespace focus::jinja {
namespace {

Value texts_value(const Call& call, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(call.text(part));
  return Value::list(call.budget, std::move(items));
}

template <std::string (*Map)(std::string_view)>
Value map_text(const Call& call) {
  const std::string text = call.self_text();
  call.budget.scan(8 * text.size());
  return Value::string(call.budget, Map(text));
}

template <bool (*Holds)(std::string_view)>
Value ask_text(const Call& call) {
  call.budget.scan(8 * call.self.as_string().size());
  return Value::boolean(Holds(call.self.as_string()));
}

/// str.isalpha and so on: true of a text that is not empty where it holds for every character.
template <bool (*Holds)(char32_t)>
bool every(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); i += character_size(text, i))
    if (!Holds(character_at(text, i))) return false;
  return !text.empty();
}

template <bool Left, bool Right>
Value strip_text(const Call& call) {
  const std::string text = call.self_text();
  if (!call.given(0)) return call.text(strip(text, Left, Right));
  const std::string_view chars = call.string(0);
  call.budget.scan(text.size() * (1 + chars.size() / 8));
  return call.text(strip(text, Left, Right, &chars));
}

template <bool FromRight>
Value split_text(const Call& call) {
  const std::string& text = call.self.as_string();
  call.budget.scan(8 * text.size());
  const std::int64_t most = call.integer(1, -1);
  if (!call.given(0)) return texts_value(call, split_space(text, most, FromRight));
  if (call.string(0).empty()) refuse("split() at an empty string");
  return texts_value(call, split_at(text, call.string(0), most, FromRight));
}

Value split_text_lines(const Call& call) {
  if (call.flag(0)) refuse("splitlines(keepends=true) is not supported");
  return texts_value(call, split_lines(call.self.as_string()));
}

/// The part of the object between its arguments `start` and `end`, and the byte where it begins.
std::pair<std::string_view, std::size_t> range_of_text(const Call& call) {
  const std::string& text = call.self.as_string();
  call.budget.scan(4 * text.size());
  const std::int64_t count = character_count(text);
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = call.given(i) ? call.integer(i) : otherwise;
    return byte_of(text, std::clamp<std::int64_t>(at < 0 ? at + count : at, 0, count));
  };
  const std::size_t begin = place(1, 0), end = place(2, count);
  const std::string_view all = text;
  return {end < begin ? std::string_view() : all.substr(begin, end - begin), begin};
}

template <bool Start>
Value starts_or_ends(const Call& call) {
  const std::string_view text = range_of_text(call).first;
  const auto holds = [&](const Value& part) {
    if (!part.is(Kind::string))
      refuse("startswith() and endswith() need a string, not {}", type_name(part));
    return Start ? text.starts_with(part.as_string()) : text.ends_with(part.as_string());
  };
  const Value& parts = call.at(0);
  return Value::boolean(parts.is(Kind::tuple) ? std::ranges::any_of(parts.as_items(), holds)
                                              : holds(parts));
}

template <bool Last, bool Must>
Value find_text(const Call& call) {
  const auto [text, begin] = range_of_text(call);
  const std::size_t at = find_bytes(text, call.string(0), Last);
  if (at == npos && Must) refuse("index() found no such string");
  if (at == npos) return Value::integer(-1);
  const std::string_view all = call.self.as_string();
  return Value::integer(character_count(all.substr(0, begin + at)));
}

Value count_text(const Call& call) {
  const std::string_view text = range_of_text(call).first;
  if (call.string(0).empty()) return Value::integer(character_count(text) + 1);
  return Value::integer(std::ssize(split_at(text, call.string(0), -1, false)) - 1);
}

Value replaced(const Call& call, const std::string& old, const std::string& fresh) {
  const std::string text = call.self_text();
  call.budget.scan(text.size());
  return Value::string(call.budget, replace(text, old, fresh, call.given(2) ? call.integer(2) : -1,
                                            call.budget.limits().bytes));
}

Value replace_text(const Call& call) {
  if (call.has(2)) call.integer(2);  // unlike the filter, the method refuses None
  return replaced(call, call.string(0), call.string(1));
}

Value replace_filter(const Call& call) {
  return replaced(call, to_text(call.budget, call.at(0)), to_text(call.budget, call.at(1)));
}

Value join_texts(const Call& call) {
  std::string text;
  bool first = true;
  for (const Value& item : iterate(call.budget, call.at(0))) {
    if (!item.is(Kind::string)) refuse("join() needs strings, not {}", type_name(item));
    call.budget.make(item.as_string().size() + call.self.as_string().size());
    if (!first) text += call.self.as_string();
    text += item.as_string();
    first = false;
  }
  return Value::string(call.budget, std::move(text));
}

template <bool Prefix>
Value remove_affix(const Call& call) {
  std::string_view text = call.self.as_string();
  const std::string& affix = call.string(0);
  if (Prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!Prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return call.text(text);
}

template <bool Last>
Value partition_text(const Call& call) {
  const std::string_view text = call.self.as_string(), part = call.string(0);
  if (part.empty()) refuse("partition() at an empty string");
  call.budget.scan(4 * text.size());
  const std::size_t at = find_bytes(text, part, Last);
  std::array<std::string_view, 3> parts = {Last ? "" : text, "", Last ? text : ""};
  if (at != npos) parts = {text.substr(0, at), part, text.substr(at + part.size())};
  return Value::tuple(call.budget, {call.text(parts[0]), call.text(parts[1]), call.text(parts[2])});
}

enum class Side { left, center, right, zeros };

Value padded(const Call& call, std::int64_t width, Side side) {
  const std::string fill = side == Side::zeros ? "0" : call.has(1) ? call.string(1) : " ";
  if (character_count(fill) != 1) refuse("a fill must be one character");
  std::string text = call.self_text();
  const std::int64_t missing = std::max<std::int64_t>(width - character_count(text), 0);
  if (missing > static_cast<std::int64_t>(call.budget.limits().output))
    refuse("a width of {} is too large", width);
  // Python's center gives an odd blank to the left where the width is odd.
  const std::int64_t before = side == Side::left     ? 0
                              : side == Side::center ? missing / 2 + (missing & width & 1)
                                                     : missing;
  call.budget.make(static_cast<std::size_t>(missing) * fill.size());
  const auto fills = [&](std::int64_t count) {
    std::string all;
    for (; count > 0; --count) all += fill;
    return all;
  };
  const bool sign = side == Side::zeros && (text.starts_with('-') || text.starts_with('+'));
  text.insert(sign ? 1 : 0, fills(before));
  return Value::string(call.budget, text + fills(missing - before));
}

template <Side Where>
Value pad_text(const Call& call) {
  return padded(call, call.integer(0), Where);
}

/// Jinja's own title(): words begin after blanks, '-' and opening brackets, and a word's first
/// character is upper.
std::string title_words(std::string_view text) {
  std::string result, word;
  const auto flush = [&] {
    const std::string_view whole = word;
    const std::size_t first = whole.empty() ? 0 : character_size(whole, 0);
    result += upper(whole.substr(0, first)) + lower(whole.substr(first));
    word.clear();
  };
  bool between = false;
  each_character(text, [&](std::string_view one, char32_t c) {
    const bool separates = is_space(c) || std::string_view("-({[<").find(one) != npos;
    if (separates != std::exchange(between, separates)) flush();
    word += one;
  });
  flush();
  return result;
}

Value string_filter(const Call& call) {
  return call.self.is(Kind::string) ? call.self : Value::string(call.budget, call.self_text());
}

Value indent(const Call& call) {
  call.self.require_defined();
  if (!call.self.is(Kind::string)) refuse("indent needs a string, not {}", type_name(call.self));
  std::string by;
  if (call.has(0) && call.at(0).is(Kind::string)) {
    by = call.string(0);
  } else {
    const std::int64_t width = std::max<std::int64_t>(call.integer(0, 4), 0);
    if (width > 10000) refuse("indent by {} spaces is not supported", width);
    by.assign(width, ' ');
  }
  const std::string text = call.self.as_string() + "\n";
  std::string result = call.flag(1) ? by : "";
  bool first = true;
  for (const std::string_view line : split_lines(text)) {
    call.budget.make(by.size() + line.size() + 1);
    if (!first) (result += '\n') += line.empty() && !call.flag(2) ? "" : by;
    result += line;
    first = false;
  }
  return Value::string(call.budget, std::move(result));
}

Value format_filter(const Call& call) {
  const auto& [positional, named] = call.arguments();
  const std::string format = call.self_text();
  if (named.empty())
    return percent_format(call.budget, format, Value::tuple(call.budget, positional));
  if (!positional.empty()) refuse("format() takes named or positional values, not both");
  return percent_format(call.budget, format, mapping_of(call.budget, named));
}

constexpr Definition kTextMethods[] = {
    {"strip", "chars?", strip_text<true, true>},
    {"lstrip", "chars?", strip_text<true, false>},
    {"rstrip", "chars?", strip_text<false, true>},
    {"split", "sep? maxsplit?", split_text<false>},
    {"rsplit", "sep? maxsplit?", split_text<true>},
    {"splitlines", "keepends?", split_text_lines},
    {"startswith", "prefix start? end?", starts_or_ends<true>},
    {"endswith", "prefix start? end?", starts_or_ends<false>},
    {"find", "sub start? end?", find_text<false, false>},
    {"rfind", "sub start? end?", find_text<true, false>},
    {"index", "sub start? end?", find_text<false, true>},
    {"rindex", "sub start? end?", find_text<true, true>},
    {"count", "sub start? end?", count_text},
    {"replace", "old new count?", replace_text},
    {"join", "iterable", join_texts},
    {"removeprefix", "affix", remove_affix<true>},
    {"removesuffix", "affix", remove_affix<false>},
    {"partition", "sep", partition_text<false>},
    {"rpartition", "sep", partition_text<true>},
    {"ljust", "width fillchar?", pad_text<Side::left>},
    {"center", "width fillchar?", pad_text<Side::center>},
    {"rjust", "width fillchar?", pad_text<Side::right>},
    {"zfill", "width fillchar?", pad_text<Side::zeros>},
    {"format", "*",
     [](const Call& c) { return brace_format(c.budget, c.self.as_string(), c.arguments()); }},
    {"upper", "", map_text<upper>},
    {"lower", "", map_text<lower>},
    {"capitalize", "", map_text<capitalize>},
    {"title", "", map_text<title>},
    {"swapcase", "", map_text<swap_case>},
    {"isalpha", "", ask_text<every<is_alphabetic>>},
    {"isdigit", "", ask_text<every<is_digit>>},
    {"isdecimal", "", ask_text<every<is_decimal>>},
    {"isnumeric", "", ask_text<every<is_numeric>>},
    {"isalnum", "", ask_text<every<is_alphanumeric>>},
    {"isspace", "", ask_text<every<is_space>>},
    {"isupper", "", ask_text<is_upper>},
    {"islower", "", ask_text<is_lower>},
};

constexpr Definition kTextFilters[] = {
    {"capitalize", "", map_text<capitalize>},
    {"center", "width?", [](const Call& c) { return padded(c, c.integer(0, 80), Side::center); }},
    {"format", "*", format_filter},
    {"indent", "width? first? blank?", indent},
    {"lower", "", map_text<lower>},
    {"replace", "old new count?", replace_filter},
    {"string safe", "", string_filter},  // nothing is escaped
    {"title", "", map_text<title_words>},
    {"trim", "chars?", strip_text<true, true>},
    {"upper", "", map_text<upper>},
};

}  // namespace

std::span<const Definition> text_methods() { return kTextMethods; }
std::span<const Definition> text_filters() { return kTextFilters; }

}  // namespace focus::jinja
