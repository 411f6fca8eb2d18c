#include <algorithm>

#include "data/chat/jinja/function.h"
#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/operators.h"
#include "data/chat/jinja/python_text.h"

// Filters that read or make lists.
namespace focus::jinja {
namespace {

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

/// An item and what it is compared by: its attribute or itself.
struct Keyed {
  std::vector<Value> key;
  Value item;
};

/// The object's items with their keys at `path`; case counts only if argument `case_sensitive`
/// says.
std::vector<Keyed> keyed_items(const Call& call, const std::vector<Path>& paths,
                               std::size_t case_sensitive) {
  std::vector<Keyed> items;
  for (const Value& item : iterate(call.budget, call.self)) {
    Keyed keyed{{}, item};
    for (const Path& path : paths) {
      Value key = follow(call, item, path);
      keyed.key.push_back(call.flag(case_sensitive) ? key : without_case(call, std::move(key)));
    }
    items.push_back(std::move(keyed));
  }
  return items;
}

Value items_filter(const Call& call) {
  if (call.self.is_undefined()) return Value::iterator(call.budget, {});
  if (!call.self.is(Kind::mapping)) refuse("items needs a mapping, not {}", type_name(call.self));
  const Value view = Value::view({call.self.share_mapping(), ViewKind::items});
  return Value::iterator(call.budget, iterate(call.budget, view));
}

Value first_filter(const Call& call) {
  if (call.self.is(Kind::iterator)) {
    Iterator& iterator = call.self.as_iterator();
    if (iterator.next < iterator.all.items.size()) return iterator.all.items[iterator.next++];
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
  return Value::iterator(call.budget, std::move(items));
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
        return Value::iterator(c.budget, std::move(results));
      }};
  if (!truth(call.self)) return Value::iterator(call.budget, {});
  if (call.arguments().positional.empty())
    return jinja::call(call.in, kByAttribute, call.self, call.arguments());
  const auto [name, arguments] = named_call(call, 0, "map");
  std::vector<Value> results;
  for (const Value& item : iterate(call.budget, call.self))
    results.push_back(call.in.call_filter(name, item, arguments));
  return Value::iterator(call.budget, std::move(results));
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
    if ((test.empty() ? truth(key) : call.in.call_test(test, key, arguments)) == Wanted)
      results.push_back(item);
  }
  return Value::iterator(call.budget, std::move(results));
}

Value sorted(const Call& call, std::vector<Keyed> items, bool reverse) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    for (std::size_t i = 0; i < a.key.size(); ++i)
      if (!equal(call.budget, a.key[i], b.key[i])) return less(call.budget, a.key[i], b.key[i]);
    return false;
  };
  // Equal ones keep their order also in reverse, as Python's do. A merge, since an order that is
  // none (NaN, lists that hold it) must do no harm.
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? before(b, a) : before(a, b);
  });
  std::vector<Value> result;
  for (Keyed& item : items) result.push_back(std::move(item.item));
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
  std::vector<Keyed> items;
  for (const auto& [key, item] : call.self.as_mapping().items) {
    const Value& order = by == "key" ? key : item;
    items.push_back({{call.flag(0) ? order : without_case(call, order)},
                     Value::tuple(call.budget, {key, item})});
  }
  return sorted(call, std::move(items), call.flag(2));
}

Value unique(const Call& call) {
  std::vector<Value> results, keys;
  for (Keyed& keyed : keyed_items(call, {path_argument(call, 1)}, 0)) {
    const Value& key = keyed.key[0];
    if (key.is(Kind::list) || key.is(Kind::mapping))
      refuse("unique cannot compare a {}", type_name(key));
    const auto same = [&](const Value& other) { return equal(call.budget, other, key); };
    if (std::ranges::any_of(keys, same)) continue;
    keys.push_back(key);
    results.push_back(std::move(keyed.item));
  }
  return Value::iterator(call.budget, std::move(results));
}

template <bool Largest>
Value extreme(const Call& call) {
  const std::vector<Keyed> items = keyed_items(call, {path_argument(call, 1)}, 0);
  if (items.empty())
    return Value::undefined("the largest or smallest item of an empty sequence is undefined");
  const Keyed* best = &items[0];
  for (const Keyed& item : std::span(items).subspan(1)) {
    const Value &a = item.key[0], &b = best->key[0];
    if (Largest ? less(call.budget, b, a) : less(call.budget, a, b)) best = &item;
  }
  return best->item;
}

Value sum(const Call& call) {
  const Path path = path_argument(call, 0);
  Value total = call.has(1) ? call.at(1) : Value::integer(0);
  if (total.is(Kind::string)) refuse("sum adds numbers, not strings");
  for (const Value& item : iterate(call.budget, call.self))
    total = arithmetic(call.budget, Op::add, total, follow(call, item, path));
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
    if (call.given(1)) line.resize(static_cast<std::size_t>(count), call.at(1));
    flush();
  }
  return Value::iterator(call.budget, std::move(results));
}

Value length_filter(const Call& call) { return Value::integer(length(call.budget, call.self)); }

constexpr Definition kSequenceFilters[] = {
    {"batch", "linecount fill_with?", batch},
    {"count", "", length_filter},
    {"dictsort", "case_sensitive? by? reverse?", dictsort},
    {"first", "", first_filter},
    {"items", "", items_filter},
    {"join", "d? attribute?", join_filter},
    {"last", "", last_filter},
    {"length", "", length_filter},
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

std::span<const Definition> sequence_filters() { return kSequenceFilters; }

}  // namespace focus::jinja
