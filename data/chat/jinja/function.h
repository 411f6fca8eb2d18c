#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/jinja/value.h"

namespace focus::jinja {

struct Statement;
struct Scope;
class Interpreter;

/// What stands in the brackets of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A function of a template: a global one, a method of `self`, or a macro with the scope that it
/// was defined in.
struct Function {
  using Body = Value (*)(Interpreter&, const Value& self, const Arguments&);
  std::string name;
  Body body = nullptr;
  Value self;
  const Statement* macro = nullptr;
  Scope* scope = nullptr;
  std::uint64_t scope_number = 0;
};

/// The arguments of a call by the parameters' names; those left out are empty. Refuses unknown
/// names, too many and too few, naming `function`.
class Bound {
 public:
  Bound(std::string_view function, const Arguments& arguments,
        std::initializer_list<std::string_view> names, std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i].has_value(); }
  const Value& at(std::size_t i) const { return *values_[i]; }
  /// Given and not None.
  bool given(std::size_t i) const { return has(i) && !at(i).is(Kind::none); }
  bool flag(std::size_t i, bool otherwise) const { return has(i) ? truth(at(i)) : otherwise; }
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  const std::string& string(std::size_t i) const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

/// A filter, test, method or global by its name; null where there is none.
Function::Body find_filter(std::string_view name);
Function::Body find_test(std::string_view name);
Function::Body find_method(const Value& self, std::string_view name);
Function::Body find_global(std::string_view name);

/// Names that Jinja has and this program refuses, so that a message can say so.
bool is_known_filter(std::string_view name);
bool is_known_global(std::string_view name);
/// True of a method that changes its object: Jinja's immutable sandbox hides it.
bool is_hidden_method(const Value& self, std::string_view name);

}  // namespace focus::jinja
