#include "data/chat/jinja/value.h"

#include <algorithm>
#include <array>

#include "data/chat/jinja/function.h"

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

}  // namespace

Value Value::undefined(std::string message) {
  return {Kind::undefined, std::make_shared<const std::string>(std::move(message))};
}
Value Value::none() { return {Kind::none, {}}; }
Value Value::boolean(bool value) { return {Kind::boolean, value}; }
Value Value::integer(std::int64_t value) { return {Kind::integer, value}; }
Value Value::real(double value) { return {Kind::real, value}; }
Value Value::range(Range range) { return {Kind::range, range}; }
Value Value::view(View view) { return {Kind::view, std::make_shared<const View>(std::move(view))}; }
Value Value::space(Namespace* space) { return {Kind::space, space}; }
Value Value::loop(LoopState* loop) { return {Kind::loop, loop}; }

Value Value::string(Budget& budget, std::string text) {
  budget.make(kValueBytes + text.size());
  return constant(std::move(text));
}

Value Value::constant(std::string text) {
  return {Kind::string, std::make_shared<const std::string>(std::move(text))};
}

Value Value::sequence(Budget& budget, Kind kind, std::vector<Value> items) {
  budget.make(kValueBytes * (1 + items.size()));
  budget.step(items.size());
  const int depth = depth_of(items);
  return {kind, std::make_shared<const Sequence>(Sequence{std::move(items), depth})};
}

Value Value::iterator(Budget& budget, std::vector<Value> items) {
  budget.make(kValueBytes * (1 + items.size()));
  const int depth = depth_of(items);
  return {Kind::iterator, std::make_shared<Iterator>(Iterator{{std::move(items), depth}, 0})};
}

Value Value::mapping(Budget& budget, std::vector<std::pair<Value, Value>> items) {
  budget.make(kValueBytes * (1 + 2 * items.size()));
  budget.step(items.size());
  int depth = 0;
  for (const auto& [key, value] : items) depth = std::max({depth, key.depth(), value.depth()});
  depth = deeper(depth);
  return {Kind::mapping, std::make_shared<const Mapping>(Mapping{std::move(items), depth})};
}

Value Value::mapping(Budget& budget, const Names& names) {
  std::vector<std::pair<Value, Value>> pairs;
  for (const auto& [name, value] : names.items) pairs.emplace_back(string(budget, name), value);
  return mapping(budget, std::move(pairs));
}

Value Value::function(Budget& budget, Function function) {
  budget.make(sizeof(Function));
  deeper(function.self.depth());
  return {Kind::function, std::make_shared<const Function>(std::move(function))};
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
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, value] : json.items())
    items.emplace_back(string(budget, key), from_json(budget, value));
  return mapping(budget, std::move(items));
}

std::int64_t Value::as_integer() const {
  return kind_ == Kind::boolean ? std::int64_t{as_boolean()} : std::get<std::int64_t>(data_);
}

double Value::as_real() const {
  return kind_ == Kind::real ? std::get<double>(data_) : static_cast<double>(as_integer());
}

std::shared_ptr<const Mapping> Value::share_mapping() const {
  return std::get<std::shared_ptr<const Mapping>>(data_);
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

int Value::depth() const {
  switch (kind_) {
    case Kind::list:
    case Kind::tuple:
      return std::get<std::shared_ptr<const Sequence>>(data_)->depth;
    case Kind::mapping:
      return as_mapping().depth;
    case Kind::view:
      return as_view().mapping->depth + 1;
    case Kind::iterator:
      return as_iterator().all.depth;
    case Kind::function:
      return as_function().self.depth() + 1;
    default:
      return 0;
  }
}

std::size_t Value::size() const {
  switch (kind_) {
    case Kind::string:
      return as_string().size();
    case Kind::list:
    case Kind::tuple:
      return as_items().size();
    case Kind::mapping:
      return as_mapping().items.size();
    case Kind::view:
      return as_view().mapping->items.size();
    case Kind::range:
      return static_cast<std::size_t>(as_range().count);
    default:
      return 0;
  }
}

const Value* Names::find(std::string_view name) const {
  for (const auto& [key, value] : items)
    if (key == name) return &value;
  return nullptr;
}

void Names::set(std::string_view name, Value value) {
  for (auto& [key, old] : items)
    if (key == name) {
      old = std::move(value);
      return;
    }
  items.emplace_back(name, std::move(value));
}

std::optional<Value> Names::take(std::string_view name) {
  const Value* const found = find(name);
  if (found == nullptr) return std::nullopt;
  const Value value = *found;
  std::erase_if(items, [&](const auto& item) { return item.first == name; });
  return value;
}

void set_member(Namespace& space, std::string_view name, Value value) {
  if (name.starts_with('_')) refuse("a namespace takes no name that begins with '_': '{}'", name);
  space.set(name, std::move(value));
}

std::string_view type_name(const Value& value) {
  static constexpr std::array kNames = {"Undefined", "NoneType",    "bool",      "int",
                                        "float",     "str",         "list",      "tuple",
                                        "dict",      "range",       "dict view", "generator",
                                        "Namespace", "LoopContext", "function",  "slice"};
  return kNames[static_cast<std::size_t>(value.kind())];
}

bool truth(const Value& value) {
  if (value.is_number()) return value.as_real() != 0;
  switch (value.kind()) {
    case Kind::iterator:
    case Kind::space:
    case Kind::loop:
    case Kind::function:
      return true;
    default:
      return value.size() > 0;
  }
}

}  // namespace focus::jinja
