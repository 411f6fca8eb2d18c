#include <algorithm>
#include <array>
#include <map>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/percent_format.h"
#include "data/chat/jinja/python_text.h"

// What `value.name(...)` calls: Python's methods of texts, lists and mappings, and a loop's.
namespace focus::jinja {
namespace {

using Table = std::map<std::string_view, Function::Body>;

Value text_value(Interpreter& in, std::string_view text) {
  return Value::string(in.budget(), std::string(text));
}

Value texts_value(Interpreter& in, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(text_value(in, part));
  return Value::list(in.budget(), std::move(items));
}

/// A method without arguments that maps a text.
template <std::string (*Map)(std::string_view)>
Value map_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("a method", arguments, {});
  in.budget().scan(8 * self.as_string().size());
  return Value::string(in.budget(), Map(self.as_string()));
}

template <bool (*Holds)(std::string_view)>
Value ask_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("a method", arguments, {});
  in.budget().scan(8 * self.as_string().size());
  return Value::boolean(Holds(self.as_string()));
}

template <bool Left, bool Right>
Value strip_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  if (!bound.given(0)) return text_value(in, strip(self.as_string(), Left, Right));
  const std::string_view chars = bound.string(0);
  in.budget().scan(self.as_string().size() * (1 + chars.size() / 8));
  return text_value(in, strip(self.as_string(), Left, Right, &chars));
}

template <bool FromRight>
Value split_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  in.budget().scan(8 * self.as_string().size());
  const std::int64_t most = bound.integer(1, -1);
  if (!bound.given(0)) return texts_value(in, split_space(self.as_string(), most, FromRight));
  if (bound.string(0).empty()) refuse("split() at an empty string");
  return texts_value(in, split_at(self.as_string(), bound.string(0), most, FromRight));
}

Value split_text_lines(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  if (bound.flag(0, false)) refuse("splitlines(keepends=true) is not supported");
  return texts_value(in, split_lines(self.as_string()));
}

/// The part of a text between two positions, of methods that take them: find, count, startswith.
std::string_view within(const std::string& text, const Bound& bound, std::size_t& begin) {
  const std::int64_t count = character_count(text);
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = bound.given(i) ? bound.integer(i, 0) : otherwise;
    return byte_of(text, std::clamp<std::int64_t>(at < 0 ? at + count : at, 0, count));
  };
  begin = place(1, 0);
  const std::size_t end = place(2, count);
  return end < begin ? std::string_view() : std::string_view(text).substr(begin, end - begin);
}

template <bool Start>
Value starts_or_ends(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound(Start ? "startswith" : "endswith", arguments, {"prefix", "start", "end"}, 1);
  std::size_t begin = 0;
  in.budget().scan(self.as_string().size());
  const std::string_view text = within(self.as_string(), bound, begin);
  const auto holds = [&](const Value& part) {
    if (!part.is(Kind::string))
      refuse("startswith() and endswith() need a string, not {}", type_name(part));
    return Start ? text.starts_with(part.as_string()) : text.ends_with(part.as_string());
  };
  const Value& parts = bound.at(0);
  return Value::boolean(parts.is(Kind::tuple) ? std::ranges::any_of(parts.as_items(), holds)
                                              : holds(parts));
}

template <bool Last, bool Must>
Value find_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound(Must ? "index" : "find", arguments, {"sub", "start", "end"}, 1);
  std::size_t begin = 0;
  in.budget().scan(4 * self.as_string().size());
  const std::string_view text = within(self.as_string(), bound, begin);
  const std::size_t at =
      Last ? find_last_bytes(text, bound.string(0)) : find_bytes(text, bound.string(0));
  if (at == std::string_view::npos && Must) refuse("index() found no such string");
  if (at == std::string_view::npos) return Value::integer(-1);
  return Value::integer(character_count(std::string_view(self.as_string()).substr(0, begin + at)));
}

Value count_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  std::size_t begin = 0;
  in.budget().scan(4 * self.as_string().size());
  const std::string_view text = within(self.as_string(), bound, begin);
  if (bound.string(0).empty()) return Value::integer(character_count(text) + 1);
  return Value::integer(std::ssize(split_at(text, bound.string(0), -1, false)) - 1);
}

Value replace_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  in.budget().scan(self.as_string().size());
  return Value::string(in.budget(), replace(self.as_string(), bound.string(0), bound.string(1),
                                            bound.integer(2, -1), in.budget().limits().bytes));
}

Value join_texts(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  std::string text;
  bool first = true;
  for (const Value& item : iterate(in.budget(), bound.at(0))) {
    if (!item.is(Kind::string)) refuse("join() needs strings, not {}", type_name(item));
    in.budget().make(item.as_string().size() + self.as_string().size());
    if (!first) text += self.as_string();
    text += item.as_string();
    first = false;
  }
  return Value::string(in.budget(), std::move(text));
}

template <bool Prefix>
Value remove_affix(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound(Prefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  std::string_view text = self.as_string();
  const std::string& affix = bound.string(0);
  if (Prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!Prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return text_value(in, text);
}

template <bool Last>
Value partition_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string_view text = self.as_string(), part = bound.string(0);
  if (part.empty()) refuse("partition() at an empty string");
  in.budget().scan(4 * text.size());
  const std::size_t at = Last ? find_last_bytes(text, part) : find_bytes(text, part);
  std::array<std::string_view, 3> parts = {text, "", ""};
  if (at != std::string_view::npos)
    parts = {text.substr(0, at), part, text.substr(at + part.size())};
  else if (Last)
    parts = {"", "", text};
  return Value::tuple(
      in.budget(), {text_value(in, parts[0]), text_value(in, parts[1]), text_value(in, parts[2])});
}

/// ljust (-1), center (0), rjust (1), zfill (2).
template <int Side>
Value pad_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("padding", arguments, {"width", "fillchar"}, 1);
  const std::string fill = Side == 2 ? "0" : bound.has(1) ? bound.string(1) : " ";
  if (character_count(fill) != 1) refuse("a fill must be one character");
  const std::int64_t width = bound.integer(0, 0), count = character_count(self.as_string());
  const std::int64_t missing = std::max<std::int64_t>(width - count, 0);
  if (missing > static_cast<std::int64_t>(in.budget().limits().output))
    refuse("a width of {} is too large", width);
  // Python's center gives an odd blank to the left where the width is odd.
  const std::int64_t left = Side == -1  ? 0
                            : Side == 0 ? missing / 2 + (missing & width & 1)
                                        : missing;
  in.budget().make(static_cast<std::size_t>(missing) * fill.size());
  std::string text = self.as_string();
  const bool sign = Side == 2 && !text.empty() && (text[0] == '-' || text[0] == '+');
  std::string before, after;
  for (std::int64_t i = 0; i < missing; ++i) (i < left ? before : after) += fill;
  text.insert(sign ? 1 : 0, before);
  return Value::string(in.budget(), text + after);
}

Value format_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  return brace_format(in.budget(), self.as_string(), arguments);
}

template <ViewKind Which>
Value view_of(Interpreter&, const Value& self, const Arguments& arguments) {
  const Bound bound("a view of a mapping", arguments, {});
  return Value::view({self.share_mapping(), Which});
}

Value get_item(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* const value = find(in.budget(), self.as_mapping(), bound.at(0));
  return value != nullptr ? *value : bound.has(1) ? bound.at(1) : Value::none();
}

Value copy_of(Interpreter&, const Value& self, const Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  return self;
}

Value count_items(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  return Value::integer(std::ranges::count_if(
      self.as_items(), [&](const Value& item) { return equal(in.budget(), item, bound.at(0)); }));
}

Value index_of(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"value"}, 1);
  const auto& items = self.as_items();
  const auto found = std::ranges::find_if(
      items, [&](const Value& item) { return equal(in.budget(), item, bound.at(0)); });
  if (found == items.end()) refuse("index() found no such item");
  return Value::integer(found - items.begin());
}

Value cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  const std::size_t count = arguments.positional.size();
  if (count == 0) refuse("loop.cycle() needs at least one value");
  return arguments.positional[static_cast<std::size_t>(self.as_loop()->index) % count];
}

Value changed(Interpreter& in, const Value& self, const Arguments& arguments) {
  auto& last = self.as_loop()->last_changed;
  const auto same = [&](const Value& a, const Value& b) { return equal(in.budget(), a, b); };
  if (last && std::ranges::equal(*last, arguments.positional, same)) return Value::boolean(false);
  last = arguments.positional;
  return Value::boolean(true);
}

const Table kTextMethods = {
    {"strip", strip_text<true, true>},
    {"lstrip", strip_text<true, false>},
    {"rstrip", strip_text<false, true>},
    {"split", split_text<false>},
    {"rsplit", split_text<true>},
    {"splitlines", split_text_lines},
    {"startswith", starts_or_ends<true>},
    {"endswith", starts_or_ends<false>},
    {"find", find_text<false, false>},
    {"rfind", find_text<true, false>},
    {"index", find_text<false, true>},
    {"rindex", find_text<true, true>},
    {"count", count_text},
    {"replace", replace_text},
    {"join", join_texts},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"partition", partition_text<false>},
    {"rpartition", partition_text<true>},
    {"ljust", pad_text<-1>},
    {"center", pad_text<0>},
    {"rjust", pad_text<1>},
    {"zfill", pad_text<2>},
    {"format", format_text},
    {"upper", map_text<upper>},
    {"lower", map_text<lower>},
    {"capitalize", map_text<capitalize>},
    {"title", map_text<title>},
    {"swapcase", map_text<swap_case>},
    {"isalpha", ask_text<all_alphabetic>},
    {"isdigit", ask_text<all_digits>},
    {"isdecimal", ask_text<all_decimal>},
    {"isnumeric", ask_text<all_numeric>},
    {"isalnum", ask_text<all_alphanumeric>},
    {"isspace", ask_text<all_space>},
    {"isupper", ask_text<is_upper>},
    {"islower", ask_text<is_lower>},
};

const Table kMappingMethods = {{"items", view_of<ViewKind::items>},
                               {"keys", view_of<ViewKind::keys>},
                               {"values", view_of<ViewKind::values>},
                               {"get", get_item},
                               {"copy", copy_of}};

const Table kTupleMethods = {{"count", count_items}, {"index", index_of}};
const Table kListMethods = {{"count", count_items}, {"index", index_of}, {"copy", copy_of}};

constexpr std::array<std::string_view, 8> kListHidden = {"append", "clear",  "extend",  "insert",
                                                         "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kMappingHidden = {"clear", "pop", "popitem", "setdefault",
                                                            "update"};

Function::Body found_in(const Table& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

Function::Body find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::string:
      return found_in(kTextMethods, name);
    case Kind::list:
      return found_in(kListMethods, name);
    case Kind::tuple:
      return found_in(kTupleMethods, name);
    case Kind::mapping:
      return found_in(kMappingMethods, name);
    default:
      return nullptr;
  }
}

bool is_hidden_method(const Value& self, std::string_view name) {
  if (self.is(Kind::list)) return std::ranges::find(kListHidden, name) != kListHidden.end();
  return self.is(Kind::mapping) && std::ranges::find(kMappingHidden, name) != kMappingHidden.end();
}

Value loop_attribute(Budget& budget, const Value& value, std::string_view name) {
  const LoopState& loop = *value.as_loop();
  const std::int64_t count = std::ssize(loop.items), index = loop.index;
  const auto near = [&](std::int64_t at) {
    if (at < 0 || at >= count) return Value::undefined("the loop has no such item");
    return loop.items[static_cast<std::size_t>(at)];
  };
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "previtem") return near(index - 1);
  if (name == "nextitem") return near(index + 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "cycle" || name == "changed")
    return Value::function(
        budget,
        {.name = std::string(name), .body = name == "cycle" ? cycle : changed, .self = value});
  return Value::undefined(fmt::format("a loop has no attribute '{}'", name));
}

}  // namespace focus::jinja
