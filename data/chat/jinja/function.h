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
  Names named;
  const Value& operator[](std::size_t i) const { return positional[i]; }
  /// Removes the first one, which is what is called.
  Value take_first() {
    Value first = std::move(positional.front());
    positional.erase(positional.begin());
    return first;
  }
};

/// A filter, test, method or global function.
struct Definition {
  std::string_view names;  // with blanks between them
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

  /// All names of the definition, and the first one, which messages use.
  std::string_view names() const { return names_; }
  std::string_view name() const { return names_.substr(0, names_.find(' ')); }
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
  std::string_view names_;
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
std::span<const Definition> other_filters();

/// Python's operators: + - * / // % **.
Value arithmetic(Budget& budget, std::string_view op, const Value& a, const Value& b);
Value negated(const Value& value, bool negative);
/// == != < <= > >= in; "not" is "not in".
bool compared(Budget& budget, std::string_view op, const Value& a, const Value& b);
/// Python's slice of a text, list, tuple or range. `parts`: start, stop and step, which may be
/// None.
Value sliced(Budget& budget, const Value& object, const std::vector<Value>& parts);
/// Python's `format % values`: %s %r %d %i %u %f %e %g %x %X %o %c %%, with flags, width and
/// precision. `values` is a tuple, a mapping for %(name)s, or one value.
Value percent_format(Budget& budget, const std::string& format, const Value& values);
/// str.format() of {} {0} {name}, without attributes and format specifications.
Value brace_format(Budget& budget, const std::string& format, const Arguments& arguments);

}  // namespace focus::jinja
