#include "data/chat/jinja/value.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/chat/jinja/function.h"
#include "data/chat/jinja/python_text.h"

namespace focus::jinja {
namespace {

constexpr std::size_t kValueBytes = 48;  // what one value in a list counts

int deeper(int depth) {
  if (depth >= kMostValueDepth) refuse("lists nested deeper than {} levels", kMostValueDepth);
  return depth + 1;
}

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return deeper(depth);
}

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

bool less_items(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  const std::size_t both = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < both; ++i)
    if (!equal(budget, a[i], b[i])) return less(budget, a[i], b[i]);
  return a.size() < b.size();
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
  return !value.is(Kind::list) && !value.is(Kind::mapping) && !value.is_view();
}

}  // namespace

Value Value::string(Budget& budget, std::string text) {
  budget.make(kValueBytes + text.size());
  return constant(std::move(text));
}

Value Value::sequence(Budget& budget, Kind kind, std::vector<Value> items) {
  budget.make(kValueBytes * (1 + items.size()));
  budget.step(items.size());
  const int depth = depth_of(items);
  return {kind, std::make_shared<const std::vector<Value>>(std::move(items)), depth};
}

Value Value::iterator(Budget& budget, const std::vector<Value>& items) {
  budget.make(kValueBytes * (1 + items.size()));
  return {Kind::iterator, std::make_shared<std::deque<Value>>(items.begin(), items.end()),
          depth_of(items)};
}

Value Value::mapping(Budget& budget, Pairs items) {
  budget.make(kValueBytes * (1 + 2 * items.size()));
  budget.step(items.size());
  int depth = 0;
  for (const auto& [key, value] : items) depth = std::max({depth, key.depth(), value.depth()});
  return {Kind::mapping, std::make_shared<const Pairs>(std::move(items)), deeper(depth)};
}

Value Value::function(Budget& budget, Function function) {
  budget.make(sizeof(Function));
  const int depth = deeper(function.self.depth());
  return {Kind::function, std::make_shared<const Function>(std::move(function)), depth};
}

Value Value::from_json(Budget& budget, const nlohmann::ordered_json& json) {
  if (json.is_null()) return none();
  if (json.is_boolean()) return boolean(json.get<bool>());
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX)
    refuse("the number {} does not fit in 64 bits", json.get<std::uint64_t>());
  if (json.is_number_integer()) return integer(json.get<std::int64_t>());
  if (json.is_number_float()) return real(json.get<double>());
  if (json.is_string()) return string(budget, json.get<std::string>());
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(from_json(budget, item));
    return list(budget, std::move(items));
  }
  Pairs items;
  for (const auto& [key, value] : json.items())
    items.emplace_back(string(budget, key), from_json(budget, value));
  return mapping(budget, std::move(items));
}

void Value::require_defined() const {
  if (!is_undefined()) return;
  const auto* message = std::get_if<std::shared_ptr<const std::string>>(&data_);
  refuse("{}", message == nullptr ? "the value is undefined" : **message);
}

bool Value::same_as(const Value& other) const {
  if (is_undefined() || is(Kind::range)) return this == &other;
  return kind_ == other.kind_ && data_ == other.data_;
}

std::size_t Value::size() const {
  if (is(Kind::string)) return as_string().size();
  if (is_sequence() || is_view()) return as_items().size();
  if (is(Kind::mapping)) return as_mapping().size();
  return is(Kind::range) ? static_cast<std::size_t>(as_range().count) : 0;
}

void set_member(Namespace& space, const std::string& name, Value value) {
  if (name.starts_with('_')) refuse("a namespace takes no name that begins with '_': '{}'", name);
  space[name] = std::move(value);
}

Value mapping_of(Budget& budget, const Names& names) {
  Pairs pairs;
  for (const auto& [name, value] : names) pairs.emplace_back(Value::string(budget, name), value);
  return Value::mapping(budget, std::move(pairs));
}

std::string_view type_name(const Value& value) {
  static constexpr std::array kNames = {
      "Undefined", "NoneType", "bool",      "int",       "float",       "str",
      "list",      "tuple",    "dict",      "range",     "dict view",   "dict view",
      "dict view", "slice",    "generator", "Namespace", "LoopContext", "function"};
  return kNames[static_cast<std::size_t>(value.kind())];
}

bool truth(const Value& value) {
  if (value.is_number()) return value.as_real() != 0;
  return value.size() > 0 || value.kind() >= Kind::slice;
}

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
      return a.size() == b.size() && std::ranges::all_of(a.as_mapping(), [&](const auto& pair) {
               const Value* const other = find(budget, b.as_mapping(), pair.first);
               return other != nullptr && equal(budget, pair.second, *other);
             });
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
  if (value.is_sequence() || value.is_view()) {
    items = value.as_items();
  } else if (value.is(Kind::string)) {
    items = characters(budget, value.as_string());
  } else if (value.is(Kind::mapping)) {
    for (const auto& [key, of_key] : value.as_mapping()) items.push_back(key);
  } else if (value.is(Kind::range)) {
    budget.make(value.size() * sizeof(Value));
    for (std::int64_t i = 0; i < value.as_range().count; ++i)
      items.push_back(Value::integer(value.as_range().at(i)));
  } else if (value.is(Kind::iterator)) {
    std::deque<Value> rest = std::exchange(value.as_iterator(), {});
    items.assign(rest.begin(), rest.end());
  } else if (!value.is_undefined()) {
    refuse("{} is not iterable", type_name(value));
  }
  budget.step(items.size());
  budget.make(items.size() * sizeof(Value));
  return items;
}

Value view_of(Budget& budget, const Value& mapping, Kind kind) {
  std::vector<Value> items;
  for (const auto& [key, value] : mapping.as_mapping())
    items.push_back(kind == Kind::keys     ? key
                    : kind == Kind::values ? value
                                           : Value::tuple(budget, {key, value}));
  return Value::sequence(budget, kind, std::move(items));
}

std::int64_t length(Budget& budget, const Value& value) {
  if (value.is(Kind::string)) {
    budget.scan(value.size());
    return character_count(value.as_string());
  }
  if (value.is_number() || value.is(Kind::none) || value.kind() >= Kind::slice)
    refuse("{} has no length", type_name(value));
  return static_cast<std::int64_t>(value.size());
}

const Value* find(Budget& budget, const Pairs& mapping, const Value& key) {
  for (const auto& [own, value] : mapping)
    if (equal(budget, own, key)) return &value;
  return nullptr;
}

void insert(Budget& budget, Pairs& items, Value key, Value value) {
  if (!is_hashable(key)) refuse("{} cannot be a mapping key", type_name(key));
  for (auto& [own, old] : items)
    if (equal(budget, own, key)) {
      old = std::move(value);
      return;
    }
  items.emplace_back(std::move(key), std::move(value));
}

}  // namespace focus::jinja
