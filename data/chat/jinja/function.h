#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/value.h"

namespace focus::jinja {

struct Macro;
struct Scope;
class Call;
class Interpreter;

/// The arguments of a call as a template gives them.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A filter, test, method or global function.
struct Definition {
  std::string_view name;
  /// Names of the parameters, "?" behind an optional one; "*": the body reads Call::arguments().
  std::string_view parameters = {};
  Value (*body)(const Call&) = nullptr;
};

/// A function as a value: a definition with its object, or a macro with the scope that defined it.
struct Function {
  std::string name;
  const Definition* definition = nullptr;
  Value self = {};
  const Macro* macro = nullptr;
  std::weak_ptr<Scope> scope = {};
};

/// One call of a definition: its object and its arguments in the order of the parameters.
class Call {
 public:
  /// Refuses arguments that the definition does not take, naming it.
  Call(Interpreter& interpreter, const Definition& definition, const Value& object,
       const Arguments& arguments);

  Interpreter& in;
  Budget& budget;
  const Value& self;

  const Arguments& arguments() const { return arguments_; }
  bool has(std::size_t i) const { return i < values_.size() && values_[i].has_value(); }
  const Value& at(std::size_t i) const { return *values_[i]; }
  /// Given and not None.
  bool given(std::size_t i) const { return has(i) && !at(i).is(Kind::none); }
  bool flag(std::size_t i) const { return has(i) && truth(at(i)); }
  std::int64_t integer(std::size_t i, std::int64_t otherwise = 0) const;
  const std::string& string(std::size_t i) const;

  /// The object as text.
  std::string self_text() const { return to_text(budget, self); }
  Value text(std::string_view result) const { return Value::string(budget, std::string(result)); }

 private:
  std::string_view name_;
  const Arguments& arguments_;
  std::vector<std::optional<Value>> values_;
};

Value call(Interpreter& in, const Definition& definition, const Value& self,
           const Arguments& arguments);

/// By name; null for an unknown one.
const Definition* find_filter(std::string_view name);
const Definition* find_test(std::string_view name);
const Definition* find_method(const Value& self, std::string_view name);
const Definition* find_global(std::string_view name);
const Definition* find_in(std::span<const Definition> definitions, std::string_view name);
/// Refuse an unknown one.
const Definition& known_filter(std::string_view name);
const Definition& known_test(std::string_view name);

/// Whether Jinja has such a global function that this program leaves out.
bool is_known_global(std::string_view name);
/// loop.index and the like; undefined for an unknown name.
Value loop_attribute(const LoopState& loop, std::string_view name);

std::span<const Definition> text_methods();
std::span<const Definition> text_filters();
std::span<const Definition> number_filters();
std::span<const Definition> sequence_filters();

}  // namespace focus::jinja
