#include <map>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

// What stands after `is`.
namespace focus::jinja {
namespace {

/// A test of the value alone.
template <bool (*Holds)(const Value&)>
Value plain(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("a test", arguments, {});
  return Value::boolean(Holds(value));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is(Kind::none); }
bool is_boolean(const Value& value) { return value.is(Kind::boolean); }
bool is_true(const Value& value) { return value.is(Kind::boolean) && value.as_boolean(); }
bool is_false(const Value& value) { return value.is(Kind::boolean) && !value.as_boolean(); }
bool is_integer(const Value& value) { return value.is(Kind::integer); }
bool is_float(const Value& value) { return value.is(Kind::real); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is(Kind::string); }
bool is_mapping(const Value& value) { return value.is(Kind::mapping); }
bool is_callable(const Value& value) {
  return value.is(Kind::function) || value.is(Kind::loop) || value.is_undefined();
}
bool is_escaped(const Value&) { return false; }
bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
    case Kind::space:
    case Kind::function:
      return false;
    default:
      return true;
  }
}
/// Has a length and items by index or key.
bool is_sequence(const Value& value) {
  return value.is_sequence() || value.is(Kind::string) || value.is(Kind::mapping) ||
         value.is(Kind::range) || value.is_undefined();
}

template <bool (*Holds)(std::string_view)>
Value of_text(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("a test", arguments, {});
  return Value::boolean(Holds(to_text(in.budget(), value)));
}

Value divisible(Interpreter& in, const Value& value, const Value& by, std::int64_t rest) {
  const Value left = arithmetic(in.budget(), Op::modulo, value, by);
  return Value::boolean(equal(in.budget(), left, Value::integer(rest)));
}

Value is_odd(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("odd", arguments, {});
  return divisible(in, value, Value::integer(2), 1);
}
Value is_even(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("even", arguments, {});
  return divisible(in, value, Value::integer(2), 0);
}
Value is_divisible(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return divisible(in, value, bound.at(0), 0);
}

template <Comparison How>
Value compares(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Bound bound("a comparison", arguments, {"other"}, 1);
  return Value::boolean(compared(in.budget(), How, value, bound.at(0)));
}

Value is_same(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  return Value::boolean(value.same_as(bound.at(0)));
}

template <Function::Body (*Find)(std::string_view)>
Value is_name_of(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("a test", arguments, {});
  return Value::boolean(value.is(Kind::string) && Find(value.as_string()) != nullptr);
}

const std::map<std::string_view, Function::Body>& table() {
  static const std::map<std::string_view, Function::Body> kTests = {
      {"defined", plain<is_defined>},
      {"undefined", plain<is_undefined>},
      {"none", plain<is_none>},
      {"boolean", plain<is_boolean>},
      {"true", plain<is_true>},
      {"false", plain<is_false>},
      {"integer", plain<is_integer>},
      {"float", plain<is_float>},
      {"number", plain<is_number>},
      {"string", plain<is_string>},
      {"mapping", plain<is_mapping>},
      {"iterable", plain<is_iterable>},
      {"sequence", plain<is_sequence>},
      {"callable", plain<is_callable>},
      {"escaped", plain<is_escaped>},
      {"upper", of_text<is_upper>},
      {"lower", of_text<is_lower>},
      {"odd", is_odd},
      {"even", is_even},
      {"divisibleby", is_divisible},
      {"eq", compares<Comparison::eq>},
      {"==", compares<Comparison::eq>},
      {"equalto", compares<Comparison::eq>},
      {"ne", compares<Comparison::ne>},
      {"!=", compares<Comparison::ne>},
      {"lt", compares<Comparison::lt>},
      {"<", compares<Comparison::lt>},
      {"lessthan", compares<Comparison::lt>},
      {"le", compares<Comparison::le>},
      {"<=", compares<Comparison::le>},
      {"gt", compares<Comparison::gt>},
      {">", compares<Comparison::gt>},
      {"greaterthan", compares<Comparison::gt>},
      {"ge", compares<Comparison::ge>},
      {">=", compares<Comparison::ge>},
      {"in", compares<Comparison::in>},
      {"sameas", is_same},
      {"filter", is_name_of<find_filter>},
      {"test", is_name_of<find_test>},
  };
  return kTests;
}

}  // namespace

Function::Body find_test(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : found->second;
}

}  // namespace focus::jinja
