#pragma once

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "data/chat/jinja/budget.h"

namespace focus::jinja {

class Value;
struct Namespace;
struct LoopState;
struct Function;

enum class Kind : std::uint8_t {
  undefined,  // Jinja's Undefined: empty text, false, nothing to iterate; else an error
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  mapping,
  range,
  keys,  // what the methods of a mapping give
  values,
  items,
  slice,     // start:stop:step in a subscript
  iterator,  // what filters such as map and select give: read once, always true
  space,     // namespace(...)
  loop,
  function,
};

struct Range {
  std::int64_t start = 0, stop = 0, step = 1, count = 0;
  std::int64_t at(std::int64_t index) const { return start + index * step; }
  bool operator==(const Range&) const = default;
};

/// Keys in the order of insertion, each once.
using Pairs = std::vector<std::pair<Value, Value>>;

/// A value of a template, of Python's types and with Python's semantics. Cheap to copy: texts and
/// containers are shared and never change.
class Value {
 public:
  Value() = default;  // undefined, without a name
  static Value undefined(std::string message) {
    return {Kind::undefined, std::make_shared<const std::string>(std::move(message))};
  }
  static Value none() { return {Kind::none, {}}; }
  static Value boolean(bool value) { return {Kind::boolean, value}; }
  static Value integer(std::int64_t value) { return {Kind::integer, value}; }
  /// One beyond 64 bits, which can be printed and compared: its digits, maybe behind a '-'.
  static Value big_integer(Budget& budget, std::string digits);
  static Value real(double value) { return {Kind::real, value}; }
  static Value range(Range range) { return {Kind::range, range}; }
  static Value space(Namespace* space) { return {Kind::space, space}; }
  static Value loop(LoopState* loop) { return {Kind::loop, loop}; }
  /// A text of the template itself.
  static Value constant(std::string text) {
    return {Kind::string, std::make_shared<const std::string>(std::move(text))};
  }
  /// A text that counts against the budget.
  static Value string(Budget& budget, std::string text);
  /// A list, tuple, slice, or the keys, values or items of a mapping.
  static Value sequence(Budget& budget, Kind kind, std::vector<Value> items);
  static Value list(Budget& budget, std::vector<Value> items) {
    return sequence(budget, Kind::list, std::move(items));
  }
  static Value tuple(Budget& budget, std::vector<Value> items) {
    return sequence(budget, Kind::tuple, std::move(items));
  }
  static Value iterator(Budget& budget, const std::vector<Value>& items);
  static Value mapping(Budget& budget, Pairs items);
  static Value function(Budget& budget, Function function);
  static Value from_json(Budget& budget, const nlohmann::ordered_json& json);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return is(Kind::undefined); }
  /// A boolean, an integer or a real number.
  bool is_number() const { return is_integral() || is(Kind::real); }
  /// A boolean or an integer.
  bool is_integral() const { return is(Kind::boolean) || is(Kind::integer); }
  bool is_big() const { return is(Kind::integer) && !std::holds_alternative<std::int64_t>(data_); }
  /// A list or a tuple.
  bool is_sequence() const { return is(Kind::list) || is(Kind::tuple); }
  /// The keys, values or items of a mapping.
  bool is_view() const { return kind_ >= Kind::keys && kind_ <= Kind::items; }

  bool as_boolean() const { return std::get<bool>(data_); }
  /// For an integer or boolean. Refuses one beyond 64 bits.
  std::int64_t as_integer() const {
    if (is_big()) refuse("the number {} does not fit in 64 bits", as_string());
    return is(Kind::boolean) ? std::int64_t{as_boolean()} : std::get<std::int64_t>(data_);
  }
  /// For any number.
  double as_real() const {
    if (is_big()) return std::strtod(as_string().c_str(), nullptr);
    return is(Kind::real) ? std::get<double>(data_) : static_cast<double>(as_integer());
  }
  /// A big integer gives its digits.
  const std::string& as_string() const { return shared<const std::string>(); }
  /// The items that `sequence` was given.
  const std::vector<Value>& as_items() const { return shared<const std::vector<Value>>(); }
  const Pairs& as_mapping() const { return shared<const Pairs>(); }
  const Range& as_range() const { return std::get<Range>(data_); }
  /// What was not read yet.
  std::deque<Value>& as_iterator() const { return shared<std::deque<Value>>(); }
  Namespace* as_space() const { return std::get<Namespace*>(data_); }
  LoopState* as_loop() const { return std::get<LoopState*>(data_); }
  const Function& as_function() const { return shared<const Function>(); }
  /// Refuses an undefined value: "'x' is undefined".
  void require_defined() const;
  /// The same object, Python's `is`.
  bool same_as(const Value& other) const;
  /// Levels of containers from here down.
  int depth() const { return depth_; }
  /// Items of a container, bytes of a string, 0 of what is neither.
  std::size_t size() const;

 private:
  using Data =
      std::variant<std::monostate, bool, std::int64_t, double, std::shared_ptr<const std::string>,
                   std::shared_ptr<const std::vector<Value>>, std::shared_ptr<const Pairs>, Range,
                   std::shared_ptr<std::deque<Value>>, Namespace*, LoopState*,
                   std::shared_ptr<const Function>>;
  Value(Kind kind, Data data, int depth = 0) : kind_(kind), depth_(depth), data_(std::move(data)) {}
  template <class T>
  T& shared() const {
    return *std::get<std::shared_ptr<T>>(data_);
  }

  Kind kind_ = Kind::undefined;
  int depth_ = 0;
  Data data_;
};

/// Names with values, in the order in which they were set.
using Names = nlohmann::ordered_map<std::string, Value>;

/// namespace(...): what `set ns.x = ...` may change. Owned by the interpreter.
struct Namespace : Names {};
/// Refuses names that begin with '_'.
void set_member(Namespace& space, const std::string& name, Value value);
/// The names of a mapping as its keys.
Value mapping_of(Budget& budget, const Names& names);

/// Python's name of a value's type, for messages.
std::string_view type_name(const Value& value);

/// Python's bool().
bool truth(const Value& value);
/// Python's ==; of other types than Python compares, false.
bool equal(Budget& budget, const Value& a, const Value& b);
/// Python's <; refuses what has no order. Numbers, texts, lists, tuples.
bool less(Budget& budget, const Value& a, const Value& b);
/// Python's `item in container`.
bool contains(Budget& budget, const Value& container, const Value& item);
/// All that a for loop would see; an iterator is empty afterwards.
std::vector<Value> iterate(Budget& budget, const Value& value);
/// What keys(), values() or items() of a mapping gives.
Value view_of(Budget& budget, const Value& mapping, Kind kind);
/// Python's len(); refuses what has none.
std::int64_t length(Budget& budget, const Value& value);
/// The value of a mapping's key, or null.
const Value* find(Budget& budget, const Pairs& mapping, const Value& key);
/// Adds a pair, or changes the one with an equal key. Refuses keys that Python cannot hash.
void insert(Budget& budget, Pairs& items, Value key, Value value);

/// Python's str() and repr().
std::string to_text(Budget& budget, const Value& value);
std::string to_repr(Budget& budget, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // of one level; empty: all in one line
  std::string between_items = ", ", after_key = ": ";
};

/// Python's json.dumps(). Refuses what it cannot write.
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace focus::jinja
