#include <algorithm>
#include <cmath>

#include "data/chat/jinja/function.h"
#include "data/chat/jinja/python_text.h"
#include "data/chat/jinja/value.h"

namespace focus::jinja {
namespace {

/// -1, 0 or 1, exactly, also where a double cannot hold the integer; 2 where one is NaN.
int compare_numbers(const Value& a, const Value& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_integral() && b.is_integral()) return sign(a.as_integer(), b.as_integer());
  if (std::isnan(a.as_real()) || std::isnan(b.as_real())) return 2;
  return sign(static_cast<long double>(a.is_integral() ? a.as_integer() : 0) +
                  (a.is_integral() ? 0.0L : a.as_real()),
              static_cast<long double>(b.is_integral() ? b.as_integer() : 0) +
                  (b.is_integral() ? 0.0L : b.as_real()));
}

bool equal_mappings(Budget& budget, const Mapping& a, const Mapping& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find(budget, b, key);
    if (other == nullptr || !equal(budget, value, *other)) return false;
  }
  return true;
}

bool less_items(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  const std::size_t both = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < both; ++i)
    if (!equal(budget, a[i], b[i])) return less(budget, a[i], b[i]);
  return a.size() < b.size();
}

std::vector<Value> view_items(Budget& budget, const View& view) {
  std::vector<Value> items;
  for (const auto& [key, value] : view.mapping->items) {
    if (view.kind == ViewKind::items)
      items.push_back(Value::tuple(budget, {key, value}));
    else
      items.push_back(view.kind == ViewKind::keys ? key : value);
  }
  return items;
}

std::vector<Value> characters(Budget& budget, const std::string& text) {
  std::vector<Value> items;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = character_size(text, i);
    items.push_back(Value::string(budget, text.substr(i, size)));
    i += size;
  }
  return items;
}

bool is_hashable(const Value& value) {
  if (value.is(Kind::tuple)) return std::ranges::all_of(value.as_items(), is_hashable);
  return !value.is(Kind::list) && !value.is(Kind::mapping) && !value.is(Kind::view);
}

}  // namespace

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      if (a.as_string().size() != b.as_string().size()) return false;
      budget.scan(a.as_string().size());
      return a.as_string() == b.as_string();
    case Kind::list:
    case Kind::tuple:
      return std::ranges::equal(a.as_items(), b.as_items(), [&](const Value& x, const Value& y) {
        return equal(budget, x, y);
      });
    case Kind::mapping:
      return equal_mappings(budget, a.as_mapping(), b.as_mapping());
    case Kind::range:
      return a.size() == b.size() && (a.size() == 0 || a.as_range().start == b.as_range().start) &&
             (a.size() < 2 || a.as_range().step == b.as_range().step);
    default:
      return a.same_as(b);
  }
}

bool less(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  for (const Value* value : {&a, &b}) value->require_defined();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.kind() == b.kind() && a.is(Kind::string)) {
    budget.scan(std::min(a.as_string().size(), b.as_string().size()));
    return a.as_string() < b.as_string();  // UTF-8 has the order of its code points
  }
  if (a.kind() == b.kind() && a.is_sequence())
    return less_items(budget, a.as_items(), b.as_items());
  refuse("{} and {} cannot be ordered", type_name(a), type_name(b));
}

bool contains(Budget& budget, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (!item.is(Kind::string))
        refuse("'in' with a string on the right needs a string on the left, not {}",
               type_name(item));
      budget.scan(container.size());
      return find_bytes(container.as_string(), item.as_string()) != std::string_view::npos;
    case Kind::mapping:
      if (!is_hashable(item)) refuse("{} cannot be a mapping key", type_name(item));
      return find(budget, container.as_mapping(), item) != nullptr;
    case Kind::list:
    case Kind::tuple:
      return std::ranges::any_of(container.as_items(), [&](const Value& other) {
        return other.same_as(item) || equal(budget, other, item);
      });
    default:
      return std::ranges::any_of(iterate(budget, container),
                                 [&](const Value& other) { return equal(budget, other, item); });
  }
}

std::vector<Value> iterate(Budget& budget, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::undefined:
      break;
    case Kind::list:
    case Kind::tuple:
      items = value.as_items();
      break;
    case Kind::string:
      items = characters(budget, value.as_string());
      break;
    case Kind::mapping:
      items = view_items(budget, {value.share_mapping(), ViewKind::keys});
      break;
    case Kind::view:
      items = view_items(budget, value.as_view());
      break;
    case Kind::range:
      budget.make(static_cast<std::size_t>(value.as_range().count) * sizeof(Value));
      for (std::int64_t i = 0; i < value.as_range().count; ++i)
        items.push_back(Value::integer(value.as_range().at(i)));
      break;
    case Kind::iterator: {
      Iterator& iterator = value.as_iterator();
      items.assign(iterator.all.items.begin() + static_cast<std::ptrdiff_t>(iterator.next),
                   iterator.all.items.end());
      iterator.next = iterator.all.items.size();
      break;
    }
    default:
      refuse("{} is not iterable", type_name(value));
  }
  budget.step(items.size());
  budget.make(items.size() * sizeof(Value));
  return items;
}

std::int64_t length(Budget& budget, const Value& value) {
  if (value.is(Kind::string)) {
    budget.scan(value.size());
    return character_count(value.as_string());
  }
  if (value.is_number() || value.is(Kind::none) || value.kind() >= Kind::iterator)
    refuse("{} has no length", type_name(value));
  return static_cast<std::int64_t>(value.size());
}

const Value* find(Budget& budget, const Mapping& mapping, const Value& key) {
  for (const auto& [own, value] : mapping.items)
    if (equal(budget, own, key)) return &value;
  return nullptr;
}

void insert(Budget& budget, std::vector<std::pair<Value, Value>>& items, Value key, Value value) {
  if (!is_hashable(key)) refuse("{} cannot be a mapping key", type_name(key));
  for (auto& [own, old] : items)
    if (equal(budget, own, key)) {
      old = std::move(value);
      return;
    }
  items.emplace_back(std::move(key), std::move(value));
}

}  // namespace focus::jinja
