#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/chat/jinja/function.h"
#include "data/chat/jinja/value.h"

namespace focus::jinja {

enum class Op : std::uint8_t {
  constant,   // value
  name,       // name
  list,       // args
  tuple,      // args
  mapping,    // args: key, value, key, value
  attribute,  // args[0].name
  item,       // args[0][args[1]]
  slice,      // start, stop, step; null where left out
  call,       // args[0](args[1], ..., names = the last of args)
  filter,     // args[0] | name(args[1], ...)
  test,       // args[0] is name(args[1], ...)
  negative,
  positive,
  logical_not,
  logical_and,
  logical_or,
  compare,  // args[0] compares[0] args[1] compares[1] args[2]
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  concat,     // args[0] ~ args[1] ~ ...
  condition,  // args[1] if args[0] else args[2]
  member,     // a target, name.names[0]: what `set ns.x` assigns to
};

enum class Comparison : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

struct Expression {
  Op op = Op::constant;
  int line = 0;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<std::unique_ptr<Expression>> args;
  std::vector<std::string> names;
  std::vector<Comparison> compares;
  const Definition* definition = nullptr;  // of a filter or test
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind : std::uint8_t {
  data,          // value
  output,        // expression
  branch,        // branches
  loop,          // for target in expression if condition; body; otherwise
  assign,        // target = expression
  assign_block,  // target = body, through `expression` (filters of the name "")
  macro,         // name, parameters, body
  call_block,    // expression(caller = body with parameters)
  filter_block,  // body through `expression`
  with,          // parameters as target = value; body
  scope,         // body in a scope of its own: {% generation %}
  break_loop,
  continue_loop,
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Block body;
};

struct Parameter {
  std::string name;
  ExpressionPtr target;  // of a `with`
  ExpressionPtr value;   // the default; may be null
};

struct Statement {
  StatementKind kind = StatementKind::data;
  int line = 0;
  std::string name;
  Value value;
  ExpressionPtr target, expression, condition;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  Block body, otherwise;
  // Whether a macro's body reads the names that take what its parameters leave over,
  // and the body of a call block.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

/// The statements of a normalised template. Refuses what Jinja does not know and what this program
/// leaves out, by name. `line` is the line that has been reached.
Block parse_template(std::string_view source, int& line);

}  // namespace focus::jinja
