#include <algorithm>

#include "data/chat/jinja/filter_table.h"
#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

namespace focus::jinja {
namespace {

/// The parts of "a.b.0": names and, where they are digits, indices.
std::vector<Value> path_of(Interpreter& in, const Value& attribute) {
  std::vector<Value> parts;
  if (!attribute.is(Kind::string)) return {attribute};
  for (const std::string_view part : split_at(attribute.as_string(), ".", -1, false)) {
    const bool index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    parts.push_back(index ? Value::integer(std::stoll(std::string(part)))
                          : Value::string(in.budget(), std::string(part)));
  }
  return parts;
}

/// item.path, with `otherwise` (may be null) for what is undefined on the way.
Value follow(Interpreter& in, Value item, const std::vector<Value>& path,
             const Value* otherwise = nullptr) {
  for (const Value& part : path) {
    item = in.item(item, part);
    if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
  }
  return item;
}

Value ignoring_case(Interpreter& in, const Value& value) {
  if (!value.is(Kind::string)) return value;
  in.budget().scan(8 * value.as_string().size());
  return Value::string(in.budget(), lower(value.as_string()));
}

Value length_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("length", arguments, {});
  return Value::integer(length(in.budget(), value));
}

Value list_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return Value::list(in.budget(), iterate(in.budget(), value));
}

Value items_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("items", arguments, {});
  if (value.is_undefined()) return Value::iterator(in.budget(), {});
  if (!value.is(Kind::mapping)) refuse("items needs a mapping, not {}", type_name(value));
  const Value view = Value::view({value.share_mapping(), ViewKind::items});
  return Value::iterator(in.budget(), iterate(in.budget(), view));
}

Value first_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("first", arguments, {});
  if (value.is(Kind::iterator)) {
    Iterator& iterator = value.as_iterator();
    if (iterator.next < iterator.all.items.size()) return iterator.all.items[iterator.next++];
  } else if (const std::vector<Value> items = iterate(in.budget(), value); !items.empty()) {
    return items.front();
  }
  return Value::undefined("the first item of an empty sequence is undefined");
}

/// Python's reversed() takes no iterator; Undefined has a length and items, but none to read.
std::vector<Value> reversible(Interpreter& in, const Value& value) {
  if (value.is(Kind::iterator))
    refuse("a generator has no last item; '|list' converts it to a list");
  return iterate(in.budget(), value);
}

Value last_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("last", arguments, {});
  const std::vector<Value> items = reversible(in, value);
  return items.empty() ? Value::undefined("the last item of an empty sequence is undefined")
                       : items.back();
}

Value reverse_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  if (value.is(Kind::string)) return sliced(in.budget(), value, {}, {}, -1);
  std::vector<Value> items = iterate(in.budget(), value);
  std::ranges::reverse(items);
  // Of what Python cannot reverse in place a list is made.
  if (value.is(Kind::iterator)) return Value::list(in.budget(), std::move(items));
  return Value::iterator(in.budget(), std::move(items));
}

Value join_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string between = bound.has(0) ? to_text(in.budget(), bound.at(0)) : "";
  const std::vector<Value> path = bound.given(1) ? path_of(in, bound.at(1)) : std::vector<Value>();
  std::string text;
  bool first = true;
  for (const Value& item : iterate(in.budget(), value)) {
    if (!first) {
      in.budget().make(between.size());
      text += between;
    }
    text += to_text(in.budget(), follow(in, item, path));
    first = false;
  }
  return Value::string(in.budget(), std::move(text));
}

Value map_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  std::vector<Value> results;
  if (!truth(value)) return Value::iterator(in.budget(), {});
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    const std::vector<Value> path = path_of(in, bound.at(0));
    const Value* const otherwise = bound.given(1) ? &bound.at(1) : nullptr;
    for (const Value& item : iterate(in.budget(), value))
      results.push_back(follow(in, item, path, otherwise));
    return Value::iterator(in.budget(), std::move(results));
  }
  const Value& name = arguments.positional[0];
  if (!name.is(Kind::string)) refuse("map needs the name of a filter, not {}", type_name(name));
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()},
                       arguments.named};
  for (const Value& item : iterate(in.budget(), value))
    results.push_back(in.call_filter(name.as_string(), item, rest));
  return Value::iterator(in.budget(), std::move(results));
}

/// select, reject, selectattr, rejectattr.
template <bool Attribute, bool Wanted>
Value select_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return Value::iterator(in.budget(), {});
  const std::size_t skipped = Attribute ? 1 : 0;
  const auto& given = arguments.positional;
  if (given.size() < skipped) refuse("selectattr and rejectattr need the name of an attribute");
  const std::vector<Value> path = Attribute ? path_of(in, given[0]) : std::vector<Value>();
  std::string test;
  Arguments rest;
  if (given.size() > skipped) {
    if (!given[skipped].is(Kind::string))
      refuse("select needs the name of a test, not {}", type_name(given[skipped]));
    test = given[skipped].as_string();
    rest = {{given.begin() + static_cast<std::ptrdiff_t>(skipped) + 1, given.end()},
            arguments.named};
  }
  std::vector<Value> results;
  for (const Value& item : iterate(in.budget(), value)) {
    const Value key = follow(in, item, path);
    if ((test.empty() ? truth(key) : in.call_test(test, key, rest)) == Wanted)
      results.push_back(item);
  }
  return Value::iterator(in.budget(), std::move(results));
}

/// What orders items: their attribute or themselves.
struct Keyed {
  std::vector<Value> key;
  Value item;
};

std::vector<Value> sorted(Interpreter& in, std::vector<Keyed> items, bool reverse) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    for (std::size_t i = 0; i < a.key.size(); ++i)
      if (!equal(in.budget(), a.key[i], b.key[i])) return less(in.budget(), a.key[i], b.key[i]);
    return false;
  };
  // Equal ones keep their order also in reverse, as Python's do. A merge, since an order that is
  // none (NaN, lists that hold it) must do no harm.
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? before(b, a) : before(a, b);
  });
  std::vector<Value> result;
  for (Keyed& item : items) result.push_back(std::move(item.item));
  return result;
}

Value sort_filter(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::vector<Value>> paths(1);
  if (bound.given(2) && bound.at(2).is(Kind::string)) {
    paths.clear();
    for (const std::string_view part : split_at(bound.string(2), ",", -1, false))
      paths.push_back(path_of(in, Value::string(in.budget(), std::string(part))));
  } else if (bound.given(2)) {
    paths[0] = path_of(in, bound.at(2));
  }
  std::vector<Keyed> items;
  for (const Value& item : iterate(in.budget(), value)) {
    Keyed keyed{{}, item};
    for (const auto& path : paths) {
      const Value key = follow(in, item, path);
      keyed.key.push_back(bound.flag(1, false) ? key : ignoring_case(in, key));
    }
    items.push_back(std::move(keyed));
  }
  return Value::list(in.budget(), sorted(in, std::move(items), bound.flag(0, false)));
}

Value dictsort(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.has(1) ? bound.string(1) : "key";
  if (by != "key" && by != "value") refuse("dictsort by '{}', which is neither key nor value", by);
  if (value.is_undefined()) refuse("{}", value.undefined_message());
  if (!value.is(Kind::mapping)) refuse("dictsort needs a mapping, not {}", type_name(value));
  std::vector<Keyed> items;
  for (const auto& [key, item] : value.as_mapping().items) {
    const Value& order = by == "key" ? key : item;
    items.push_back({{bound.flag(0, false) ? order : ignoring_case(in, order)},
                     Value::tuple(in.budget(), {key, item})});
  }
  return Value::list(in.budget(), sorted(in, std::move(items), bound.flag(2, false)));
}

Value unique(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> path = bound.given(1) ? path_of(in, bound.at(1)) : std::vector<Value>();
  std::vector<Value> results, keys;
  for (const Value& item : iterate(in.budget(), value)) {
    Value key = follow(in, item, path);
    if (!bound.flag(0, false)) key = ignoring_case(in, key);
    if (key.is(Kind::list) || key.is(Kind::mapping))
      refuse("unique cannot compare a {}", type_name(key));
    const auto same = [&](const Value& other) { return equal(in.budget(), other, key); };
    if (std::ranges::any_of(keys, same)) continue;
    keys.push_back(std::move(key));
    results.push_back(item);
  }
  return Value::iterator(in.budget(), std::move(results));
}

template <bool Largest>
Value extreme(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound(Largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> path = bound.given(1) ? path_of(in, bound.at(1)) : std::vector<Value>();
  std::optional<Keyed> best;
  for (const Value& item : iterate(in.budget(), value)) {
    Value key = follow(in, item, path);
    if (!bound.flag(0, false)) key = ignoring_case(in, key);
    if (!best ||
        (Largest ? less(in.budget(), best->key[0], key) : less(in.budget(), key, best->key[0])))
      best = Keyed{{std::move(key)}, item};
  }
  return best ? best->item
              : Value::undefined("the largest or smallest item of an empty sequence is undefined");
}

Value sum(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const std::vector<Value> path = bound.given(0) ? path_of(in, bound.at(0)) : std::vector<Value>();
  Value total = bound.has(1) ? bound.at(1) : Value::integer(0);
  if (total.is(Kind::string)) refuse("sum adds numbers, not strings");
  for (const Value& item : iterate(in.budget(), value))
    total = arithmetic(in.budget(), Op::add, total, follow(in, item, path));
  return total;
}

Value batch(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t count = bound.integer(0, 1);
  if (count < 1 || count > kMostRange) refuse("batch of {} items is not supported", count);
  std::vector<Value> results, line;
  const auto flush = [&] { results.push_back(Value::list(in.budget(), std::exchange(line, {}))); };
  for (const Value& item : iterate(in.budget(), value)) {
    if (std::ssize(line) == count) flush();
    line.push_back(item);
  }
  if (!line.empty()) {
    if (bound.given(1)) line.resize(static_cast<std::size_t>(count), bound.at(1));
    flush();
  }
  return Value::iterator(in.budget(), std::move(results));
}

}  // namespace

const FilterTable& sequence_filters() {
  static const FilterTable kFilters = {
      {"batch", batch},
      {"count", length_filter},
      {"dictsort", dictsort},
      {"first", first_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", last_filter},
      {"length", length_filter},
      {"list", list_filter},
      {"map", map_filter},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<true, false>},
      {"reverse", reverse_filter},
      {"select", select_filter<false, true>},
      {"selectattr", select_filter<true, true>},
      {"sort", sort_filter},
      {"sum", sum},
      {"unique", unique},
  };
  return kFilters;
}

}  // namespace focus::jinja
