#pragma once

#include <cstdint>
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
struct Names;
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
  view,      // what keys(), values() and items() of a mapping give
  iterator,  // what filters such as map and select give: read once, always true
  space,     // namespace(...)
  loop,
  function,
  slice,  // start:stop:step in a subscript
};

/// A list or tuple. `depth`: levels of containers from here down.
struct Sequence {
  std::vector<Value> items;
  int depth = 1;
};

/// A dict: keys in the order of insertion, each once.
struct Mapping {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
};

struct Range {
  std::int64_t start = 0, stop = 0, step = 1, count = 0;
  std::int64_t at(std::int64_t index) const { return start + index * step; }
  bool operator==(const Range&) const = default;
};

enum class ViewKind : std::uint8_t { keys, values, items };

struct View {
  std::shared_ptr<const Mapping> mapping;
  ViewKind kind = ViewKind::keys;
};

struct Iterator {
  Sequence all;
  std::size_t next = 0;
};

/// A value of a template, of Python's types and with Python's semantics. Cheap to copy: texts and
/// containers are shared and never change.
class Value {
 public:
  Value() = default;  // undefined, without a name
  static Value undefined(std::string message);
  static Value none();
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  /// A text that counts against the budget.
  static Value string(Budget& budget, std::string text);
  /// A text of the template itself.
  static Value constant(std::string text);
  /// A list or a tuple.
  static Value sequence(Budget& budget, Kind kind, std::vector<Value> items);
  static Value list(Budget& budget, std::vector<Value> items) {
    return sequence(budget, Kind::list, std::move(items));
  }
  static Value tuple(Budget& budget, std::vector<Value> items) {
    return sequence(budget, Kind::tuple, std::move(items));
  }
  static Value iterator(Budget& budget, std::vector<Value> items);
  static Value mapping(Budget& budget, std::vector<std::pair<Value, Value>> items);
  static Value mapping(Budget& budget, const Names& names);
  static Value range(Range range);
  static Value view(View view);
  static Value space(Namespace* space);
  static Value loop(LoopState* loop);
  static Value function(Budget& budget, Function function);
  static Value from_json(Budget& budget, const nlohmann::ordered_json& json);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  /// A boolean, an integer or a real number.
  bool is_number() const { return is_integral() || kind_ == Kind::real; }
  /// A boolean or an integer.
  bool is_integral() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  /// A list or a tuple.
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }

  bool as_boolean() const { return std::get<bool>(data_); }
  /// For an integer or boolean.
  std::int64_t as_integer() const;
  /// For any number.
  double as_real() const;
  const std::string& as_string() const {
    return *std::get<std::shared_ptr<const std::string>>(data_);
  }
  const std::vector<Value>& as_items() const {
    return std::get<std::shared_ptr<const Sequence>>(data_)->items;
  }
  const Mapping& as_mapping() const { return *std::get<std::shared_ptr<const Mapping>>(data_); }
  std::shared_ptr<const Mapping> share_mapping() const;
  const Range& as_range() const { return std::get<Range>(data_); }
  const View& as_view() const { return *std::get<std::shared_ptr<const View>>(data_); }
  Iterator& as_iterator() const { return *std::get<std::shared_ptr<Iterator>>(data_); }
  Namespace* as_space() const { return std::get<Namespace*>(data_); }
  LoopState* as_loop() const { return std::get<LoopState*>(data_); }
  const Function& as_function() const { return *std::get<std::shared_ptr<const Function>>(data_); }
  /// Refuses an undefined value: "'x' is undefined".
  void require_defined() const;
  /// The same object, Python's `is`.
  bool same_as(const Value& other) const;
  int depth() const;
  /// Items of a container, bytes of a string, 0 of what is neither.
  std::size_t size() const;

 private:
  using Data =
      std::variant<std::monostate, bool, std::int64_t, double, std::shared_ptr<const std::string>,
                   std::shared_ptr<const Sequence>, std::shared_ptr<const Mapping>, Range,
                   std::shared_ptr<const View>, std::shared_ptr<Iterator>, Namespace*, LoopState*,
                   std::shared_ptr<const Function>>;
  Value(Kind kind, Data data) : kind_(kind), data_(std::move(data)) {}

  Kind kind_ = Kind::undefined;
  Data data_;
};

/// Names with values, in the order in which they were set.
struct Names {
  std::vector<std::pair<std::string, Value>> items = {};
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  /// Removes it; empty for an unknown name.
  std::optional<Value> take(std::string_view name);
};

/// namespace(...): what `set ns.x = ...` may change. Owned by the interpreter.
struct Namespace : Names {};
/// Refuses names that begin with '_'.
void set_member(Namespace& space, std::string_view name, Value value);

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
/// Python's len(); refuses what has none.
std::int64_t length(Budget& budget, const Value& value);
/// The value of a mapping's key, or null.
const Value* find(Budget& budget, const Mapping& mapping, const Value& key);
/// Adds a pair, or changes the one with an equal key. Refuses keys that Python cannot hash.
void insert(Budget& budget, std::vector<std::pair<Value, Value>>& items, Value key, Value value);

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
