#include <algorithm>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

// Expressions: the half of the interpreter that gives values.
namespace focus::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Nesting level = deeper();
  budget_.step();
  line_ = expression.line;
  switch (expression.op) {
    case Op::constant:
      return expression.value;
    case Op::name:
      return evaluate_name(expression);
    case Op::list:
    case Op::tuple:
    case Op::mapping:
      return evaluate_container(expression);
    case Op::attribute: {
      const Value object = evaluate(*expression.args[0]);
      line_ = expression.line;
      return attribute(object, expression.value);
    }
    case Op::item:
      return evaluate_item(expression);
    case Op::call: {
      const Value function = evaluate(*expression.args[0]);
      return call(function, arguments_of(expression, 1));
    }
    case Op::filter:
      return evaluate_filter(expression);
    case Op::test: {
      const Value input = evaluate(*expression.args[0]);
      return jinja::call(*this, *expression.definition, input, arguments_of(expression, 1));
    }
    case Op::negative:
    case Op::positive:
      return negated(evaluate(*expression.args[0]), expression.op == Op::negative);
    case Op::logical_not:
    case Op::logical_and:
    case Op::logical_or:
    case Op::condition:
      return evaluate_logic(expression);
    case Op::compare:
      return evaluate_compare(expression);
    case Op::concat:
      return evaluate_concat(expression);
    case Op::slice:
    case Op::member:
      refuse("a slice is outside of a subscript");
    default:
      break;
  }
  const Value left = evaluate(*expression.args[0]), right = evaluate(*expression.args[1]);
  line_ = expression.line;
  return arithmetic(budget_, expression.op, left, right);
}

Value Interpreter::evaluate_name(const Expression& expression) {
  if (const Value* const value = lookup(expression.name)) return *value;
  for (const auto& [key, value] : variables_.as_mapping().items)
    if (key.as_string() == expression.name) return value;
  if (const Definition* const global = find_global(expression.name))
    return Value::function(budget_, {.name = expression.name, .definition = global, .self = {}});
  if (is_known_global(expression.name))
    refuse("the global function '{}' is not supported", expression.name);
  return Value::undefined(fmt::format("'{}' is undefined", expression.name));
}

Value Interpreter::evaluate_container(const Expression& expression) {
  if (expression.op == Op::mapping) {
    std::vector<std::pair<Value, Value>> items;
    for (std::size_t i = 0; i < expression.args.size(); i += 2) {
      Value key = evaluate(*expression.args[i]);
      insert(budget_, items, std::move(key), evaluate(*expression.args[i + 1]));
    }
    return Value::mapping(budget_, std::move(items));
  }
  std::vector<Value> items;
  for (const auto& arg : expression.args) items.push_back(evaluate(*arg));
  const Kind kind = expression.op == Op::list ? Kind::list : Kind::tuple;
  return Value::sequence(budget_, kind, std::move(items));
}

Value Interpreter::evaluate_item(const Expression& expression) {
  const Value object = evaluate(*expression.args[0]);
  const Expression& key = *expression.args[1];
  if (key.op == Op::slice) return evaluate_slice(object, key);
  const Value index = evaluate(key);
  line_ = expression.line;
  return item(object, index);
}

Value Interpreter::evaluate_slice(const Value& object, const Expression& slice) {
  std::optional<std::int64_t> parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (!slice.args[i]) continue;
    const Value value = evaluate(*slice.args[i]);
    if (value.is_integral())
      parts[i] = value.as_integer();
    else if (!value.is(Kind::none))
      refuse("a slice needs integers, not {}", type_name(value));
  }
  line_ = slice.line;
  if (object.is_undefined()) refuse("{}", object.undefined_message());
  return sliced(budget_, object, parts[0], parts[1], parts[2]);
}

Arguments Interpreter::arguments_of(const Expression& expression, std::size_t first) {
  Arguments arguments;
  const std::size_t named = expression.args.size() - expression.names.size();
  for (std::size_t i = first; i < named; ++i)
    arguments.positional.push_back(evaluate(*expression.args[i]));
  for (std::size_t i = 0; i < expression.names.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      if (expression.names[j] == expression.names[i])
        refuse("the argument '{}' is given twice", expression.names[i]);
    arguments.named.emplace_back(expression.names[i], evaluate(*expression.args[named + i]));
  }
  line_ = expression.line;
  return arguments;
}

Value Interpreter::call(const Value& function, const Arguments& arguments) {
  if (function.is_undefined()) refuse("{}", function.undefined_message());
  if (!function.is(Kind::function)) refuse("a {} cannot be called", type_name(function));
  const Function& body = function.as_function();
  if (body.macro != nullptr) return call_macro(body, arguments);
  return jinja::call(*this, *body.definition, body.self, arguments);
}

Value Interpreter::evaluate_filter(const Expression& expression, const Value* input) {
  // In a block the innermost filter has no input of its own: it reads the block's text.
  const Value value = !expression.args[0] ? *input
                      : input != nullptr && expression.op == Op::filter
                          ? evaluate_filter(*expression.args[0], input)
                          : evaluate(*expression.args[0]);
  return jinja::call(*this, *expression.definition, value, arguments_of(expression, 1));
}

Value Interpreter::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.args[0]);
  for (std::size_t i = 0; i < expression.compares.size(); ++i) {
    Value right = evaluate(*expression.args[i + 1]);
    line_ = expression.line;
    if (!compared(budget_, expression.compares[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_logic(const Expression& expression) {
  Value first = evaluate(*expression.args[0]);
  const bool holds = truth(first);
  switch (expression.op) {
    case Op::logical_not:
      return Value::boolean(!holds);
    case Op::logical_and:
      return holds ? evaluate(*expression.args[1]) : first;
    case Op::logical_or:
      return holds ? first : evaluate(*expression.args[1]);
    default:
      break;
  }
  if (holds) return evaluate(*expression.args[1]);
  if (expression.args[2]) return evaluate(*expression.args[2]);
  return Value::undefined(
      fmt::format("the inline if of line {} is false and has no 'else'", expression.line));
}

Value Interpreter::evaluate_concat(const Expression& expression) {
  std::string text;
  for (const auto& arg : expression.args) {
    const Value part = evaluate(*arg);
    text += to_text(budget_, part);
  }
  return Value::string(budget_, std::move(text));
}

Value Interpreter::call_filter(const std::string& name, const Value& input,
                               const Arguments& arguments) {
  const Definition* const filter = find_filter(name);
  if (filter == nullptr) refuse("the filter '{}' is {}", name, missing_filter(name));
  return jinja::call(*this, *filter, input, arguments);
}

bool Interpreter::call_test(const std::string& name, const Value& input,
                            const Arguments& arguments) {
  const Definition* const test = find_test(name);
  if (test == nullptr) refuse("the test '{}' is unknown", name);
  return truth(jinja::call(*this, *test, input, arguments));
}

Value Interpreter::attribute(const Value& object, const Value& name) {
  const std::string& text = name.as_string();
  if (object.is_undefined()) refuse("{}", object.undefined_message());
  if (const Definition* const method = find_method(object, text)) {
    if (method->body == nullptr)
      return Value::undefined(
          fmt::format("'{}' of a {} is hidden: it would change it", text, type_name(object)));
    return Value::function(budget_, {.name = text, .definition = method, .self = object});
  }
  if (object.is(Kind::loop)) return loop_attribute(*object.as_loop(), text);
  if (object.is(Kind::space))
    if (const Value* const value = object.as_space()->find(text)) return *value;
  if (object.is(Kind::mapping))
    if (const Value* const value = find(budget_, object.as_mapping(), name)) return *value;
  if (object.is(Kind::function) && object.as_function().macro != nullptr && text == "name")
    return Value::string(budget_, object.as_function().name);
  return Value::undefined(fmt::format("a {} has no attribute '{}'", type_name(object), text));
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) refuse("{}", object.undefined_message());
  if (object.is(Kind::mapping)) {
    if (const Value* const value = find(budget_, object.as_mapping(), key)) return *value;
  } else if (key.is_integral() &&
             (object.is_sequence() || object.is(Kind::range) || object.is(Kind::string))) {
    const std::int64_t count = length(budget_, object);
    const std::int64_t index = key.as_integer() < 0 ? key.as_integer() + count : key.as_integer();
    if (index >= 0 && index < count) {
      if (object.is_sequence()) return object.as_items()[static_cast<std::size_t>(index)];
      if (object.is(Kind::range)) return Value::integer(object.as_range().at(index));
      const std::string& text = object.as_string();
      const std::size_t begin = byte_of(text, index);
      return Value::string(budget_, text.substr(begin, character_size(text, begin)));
    }
  }
  if (key.is(Kind::string) && !object.is(Kind::mapping)) return attribute(object, key);
  if (key.is(Kind::string) && find_method(object, key.as_string()) != nullptr)
    return attribute(object, key);
  return Value::undefined(fmt::format("a {} has no item {}", type_name(object),
                                      key.is(Kind::string) || key.is_integral()
                                          ? to_repr(budget_, key)
                                          : std::string(type_name(key))));
}

}  // namespace focus::jinja
