#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/lexer.h"

namespace focus::jinja {

/// Reads expressions of a template, with Jinja's precedence. For parser.cpp.
class ExpressionParser {
 public:
  /// `line` is kept at the line that has been reached, for errors.
  ExpressionParser(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) {
    line_ = current().line;
  }

 protected:
  using Target = std::function<void(Interpreter&, const Value&)>;
  static inline const std::map<std::string_view, Value> kConstants = {
      {"true", Value::boolean(true)},   {"True", Value::boolean(true)},
      {"false", Value::boolean(false)}, {"False", Value::boolean(false)},
      {"none", Value::none()},          {"None", Value::none()}};

  const Token& current() const { return tokens_[at_]; }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is(std::string_view name_or_op) const {
    return (is(TokenKind::name) || is(TokenKind::op)) && current().text == name_or_op;
  }
  /// A name, and this behind it.
  bool is_name_before(std::string_view name_or_op) const {
    return is(TokenKind::name) && tokens_[at_ + 1].text == name_or_op;
  }

  /// One level of brackets or blocks.
  Nesting nested() { return {level_, kMostSourceDepth, "brackets and blocks nested"}; }

  /// Calls `read` for each of the parts between commas, up to and with `close`.
  template <class Read>
  void each_part(std::string_view close, Read&& read) {
    for (bool first = true; !is(close); first = false) {
      if (!first) expect(",");
      if (!is(close)) read();
    }
    take();
  }

  Token take() {
    const Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    line_ = current().line;
    return token;
  }

  bool skip(std::string_view name_or_op) {
    const bool found = is(name_or_op);
    if (found) take();
    return found;
  }

  [[noreturn]] void unexpected(std::string_view wanted) const {
    refuse("expected {}, found {}", wanted,
           is(TokenKind::end)    ? "the end of the template"
           : is(TokenKind::data) ? "text"
                                 : fmt::format("'{}'", current().text.substr(0, 40)));
  }

  void expect(std::string_view op) {
    if (!skip(op)) unexpected(fmt::format("'{}'", op));
  }

  Token expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) unexpected(what);
    return take();
  }

  std::string expect_name() { return std::string(expect(TokenKind::name, "a name").text); }

  /// An expression of that line, which `give` computes from its parts.
  template <class Give>
  static Expression lazy(int line, Parts parts, Give give) {
    int depth = 1;
    for (const Expression& part : parts.all) depth = std::max(depth, part.depth + 1);
    // A chain of operators is nested too, though nothing recursed to read it.
    if (depth > 2 * kMostSourceDepth)
      refuse("an expression nested deeper than {} levels", 2 * kMostSourceDepth);
    return {std::move(give), line, depth, false, std::make_shared<const Parts>(std::move(parts))};
  }

  /// One that `give` computes from the values of its parts.
  template <class Give>
  static Expression node(int line, Parts parts, Give give) {
    return lazy(line, std::move(parts), [give](Interpreter& in, const Parts& all) {
      Arguments values = all.values(in);
      return give(in, values);
    });
  }

  template <class... All>
  static Parts list(All... all) {
    Parts parts;
    (parts.all.push_back(std::move(all)), ...);
    return parts;
  }

  static Expression constant(int line, Value value) {
    return lazy(line, {}, [value = std::move(value)](Interpreter&, const Parts&) { return value; });
  }

  template <Kind kind>
  static Value sequence(Interpreter& in, Arguments& values) {
    return Value::sequence(in.budget, kind, std::move(values.positional));
  }

  /// Commas make a tuple. `with_condition` false: no inline if, which is the for's own.
  Expression tuple(bool with_condition, bool in_brackets = false) {
    const int line = current().line;
    const auto ends = [&] {
      return is(TokenKind::variable_end) || is(TokenKind::block_end) || is(")") ||
             (!with_condition && is("recursive"));
    };
    Parts items;
    bool is_tuple = false;
    while (!ends()) {
      items.all.push_back(with_condition ? expression() : logical_or());
      if (!skip(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && items.all.size() == 1) return std::move(items.all[0]);
    if (!is_tuple && !in_brackets) unexpected("an expression");
    return node(line, std::move(items), sequence<Kind::tuple>);
  }

  Expression expression() {
    const Nesting level = nested();
    int line = current().line;
    Expression result = logical_or();
    while (skip("if")) {
      Expression test = logical_or(),
                 otherwise = constant(
                     line, Value::undefined(fmt::format(
                               "the inline if of line {} is false and has no 'else'", line)));
      if (skip("else")) otherwise = expression();
      result = lazy(line, list(std::move(test), std::move(result), std::move(otherwise)),
                    [](Interpreter& in, const Parts& parts) {
                      return parts.all[truth(parts.all[0](in)) ? 1 : 2](in);
                    });
      line = current().line;
    }
    return result;
  }

  /// operand, or a chain of operands and operators of one level, from the left: join(line, left,
  /// operator, right).
  template <class Join>
  Expression binary(std::initializer_list<std::string_view> operators,
                    Expression (ExpressionParser::*operand)(), Join join) {
    Expression left = (this->*operand)();
    for (;;) {
      const auto found = std::ranges::find(operators, current().text);
      if (found == operators.end() || !is(*found)) return left;
      const int line = take().line;
      left = join(line, list(std::move(left), (this->*operand)()), *found);
    }
  }

  static Expression logic(int line, Parts parts, std::string_view name) {
    return lazy(line, std::move(parts),
                [either = name == "or"](Interpreter& in, const Parts& both) {
                  Value first = both.all[0](in);
                  return truth(first) == either ? first : both.all[1](in);
                });
  }

  static Expression calculation(int line, Parts parts, std::string_view op) {
    return node(line, std::move(parts), [op](Interpreter& in, Arguments& both) {
      return arithmetic(in.budget, op, both[0], both[1]);
    });
  }

  Expression logical_or() { return binary({"or"}, &ExpressionParser::logical_and, logic); }
  Expression logical_and() { return binary({"and"}, &ExpressionParser::logical_not, logic); }

  static Value opposite(Interpreter&, Arguments& values) {
    return Value::boolean(!truth(values[0]));
  }

  Expression logical_not() {
    if (!is("not")) return compare();
    const Nesting level = nested();
    const int line = take().line;
    return node(line, list(logical_not()), opposite);
  }

  Expression compare() {
    static constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not"};
    const int line = current().line;
    Parts operands = list(sum());
    std::vector<std::string_view> compares;
    for (;;) {
      const auto op = std::ranges::find(kOps, current().text);
      if (op == std::end(kOps) || !is(*op) || (is("not") && !is_name_before("in"))) break;
      compares.push_back(*op);
      if (take().text == "not") take();
      operands.all.push_back(sum());
    }
    if (compares.empty()) return std::move(operands.all[0]);
    return lazy(line, std::move(operands), [compares](Interpreter& in, const Parts& parts) {
      Value left = parts.all[0](in);
      for (std::size_t i = 0; i < compares.size(); ++i) {
        Value right = parts.all[i + 1](in);
        if (!compared(in.budget, compares[i], left, right)) return Value::boolean(false);
        left = std::move(right);
      }
      return Value::boolean(true);
    });
  }

  Expression sum() { return binary({"+", "-"}, &ExpressionParser::concat, calculation); }

  Expression concat() {
    const int line = current().line;
    Parts operands;
    do operands.all.push_back(product());
    while (skip("~"));
    if (operands.all.size() == 1) return std::move(operands.all[0]);
    return node(line, std::move(operands), [](Interpreter& in, Arguments& values) {
      std::string text;
      for (const Value& value : values.positional) text += to_text(in.budget, value);
      return Value::string(in.budget, std::move(text));
    });
  }

  Expression product() {
    return binary({"*", "/", "//", "%"}, &ExpressionParser::power, calculation);
  }
  Expression power() { return binary({"**"}, &ExpressionParser::filtered, calculation); }

  Expression filtered() {
    Expression result = unary();
    for (;;) {
      if (is("|"))
        result = filter(std::move(result));
      else if (is("is"))
        result = test(std::move(result));
      else if (is("("))
        result = call(std::move(result));
      else
        return result;
    }
  }

  Expression unary() {
    if (!is("-") && !is("+")) return postfix(primary());
    const Nesting level = nested();
    const Token sign = take();
    const bool minus = sign.text == "-";
    return postfix(node(sign.line, list(unary()), [minus](Interpreter&, Arguments& values) {
      return negated(values[0], minus);
    }));
  }

  Expression primary() {
    const int line = current().line;
    if (is(TokenKind::name)) return name_or_constant();
    if (is(TokenKind::integer) || is(TokenKind::real)) return number();
    if (is(TokenKind::string)) {
      std::string text;
      while (is(TokenKind::string)) text += string_of(take().text);
      return constant(line, Value::constant(std::move(text)));
    }
    const Nesting level = nested();
    Parts items;
    if (skip("[")) {
      each_part("]", [&] { items.all.push_back(expression()); });
      return node(line, std::move(items), sequence<Kind::list>);
    }
    if (skip("{")) {
      each_part("}", [&] {
        items.all.push_back(expression());
        expect(":");
        items.all.push_back(expression());
      });
      return node(line, std::move(items), [](Interpreter& in, Arguments& values) {
        Pairs pairs;
        for (std::size_t i = 0; i < values.positional.size(); i += 2)
          insert(in.budget, pairs, values[i], values[i + 1]);
        return Value::mapping(in.budget, std::move(pairs));
      });
    }
    if (!skip("(")) unexpected("an expression");
    Expression result = tuple(true, true);
    expect(")");
    return result;
  }

  Expression name_or_constant() {
    const Token token = take();
    if (const auto found = kConstants.find(token.text); found != kConstants.end())
      return constant(token.line, found->second);
    const std::string name(token.text);
    if (!macros_.empty()) macros_.back()->reads.insert(name);
    return lazy(token.line, {}, [name](Interpreter& in, const Parts&) { return in.name(name); });
  }

  Expression number() {
    const Token token = take();
    std::string text(token.text);
    std::erase(text, '_');
    if (token.kind == TokenKind::real)
      return constant(token.line, Value::real(std::strtod(text.c_str(), nullptr)));
    const char letter = text.size() > 2 ? static_cast<char>(text[1] | 0x20) : '0';
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    const std::size_t first = base == 10 ? 0 : 2;
    std::int64_t value = 0;
    const auto read = std::from_chars(text.data() + first, text.data() + text.size(), value, base);
    if (read.ec != std::errc() && base == 10)
      return lazy(
          token.line, {},
          [digits = text.substr(std::min(text.find_first_not_of('0'), text.size() - 1))](
              Interpreter& in, const Parts&) { return Value::big_integer(in.budget, digits); });
    if (read.ec != std::errc()) refuse("the number {} does not fit in 64 bits", text.substr(0, 40));
    return constant(token.line, Value::integer(value));
  }

  Expression postfix(Expression result) {
    for (;;) {
      if (is(".") || is("["))
        result = subscript(std::move(result));
      else if (is("("))
        result = call(std::move(result));
      else
        return result;
    }
  }

  Expression subscript(Expression object) {
    const Token open = take();
    if (open.text == "." && is(TokenKind::name)) {
      Expression name = constant(open.line, Value::constant(std::string(take().text)));
      return node(
          open.line, list(std::move(object), std::move(name)),
          [](Interpreter& in, Arguments& values) { return in.attribute(values[0], values[1]); });
    }
    Parts indices;
    if (open.text == ".") {
      if (!is(TokenKind::integer)) refuse("expected a name or number after '.'");
      indices.all.push_back(number());
    } else {
      const Nesting level = nested();
      while (!is("]")) {
        if (!indices.all.empty()) expect(",");
        indices.all.push_back(subscribed());
      }
      take();
    }
    Expression index = indices.all.size() == 1
                           ? std::move(indices.all[0])
                           : node(open.line, std::move(indices), sequence<Kind::tuple>);
    return node(open.line, list(std::move(object), std::move(index)),
                [](Interpreter& in, Arguments& values) { return in.item(values[0], values[1]); });
  }

  /// The part between brackets of a subscript: an expression, or start:stop:step.
  Expression subscribed() {
    const int line = current().line;
    const auto part = [&](bool given) {
      return given ? expression() : constant(line, Value::none());
    };
    const auto ends = [&] { return is(":") || is("]") || is(","); };
    Expression start = part(!is(":"));
    if (!skip(":")) return start;
    Expression stop = part(!ends()), step = part(skip(":") && !ends());
    return node(line, list(std::move(start), std::move(stop), std::move(step)),
                sequence<Kind::slice>);
  }

  /// Reads (...), behind `parts`.
  void arguments(Parts& parts) {
    const Nesting level = nested();
    expect("(");
    each_part(")", [&] {
      if (is("*") || is("**"))
        refuse("'{}' in the arguments of a call is not supported", current().text);
      if (is_name_before("=")) {
        parts.names.emplace_back(take().text);
        if (std::ranges::count(parts.names, parts.names.back()) > 1)
          refuse("the argument '{}' is given twice", parts.names.back());
        take();
      } else if (!parts.names.empty()) {
        refuse("an argument without a name follows one with a name");
      }
      parts.all.push_back(expression());
    });
  }

  Expression call(Expression called) {
    const int line = current().line;
    Parts parts = list(std::move(called));
    arguments(parts);
    Expression result = node(line, std::move(parts), [](Interpreter& in, Arguments& values) {
      const Value function = values.take_first();
      return in.call(function, values);
    });
    result.is_call = true;
    return result;
  }

  /// parts[0] | name(parts[1], ...). As in Jinja an unknown name does no harm where it never runs:
  /// `known` refuses it then.
  static Expression applied(int line, const Definition* definition, const std::string& name,
                            const Definition& (*known)(std::string_view), Parts parts) {
    return node(line, std::move(parts), [=](Interpreter& in, Arguments& values) {
      const Value input = values.take_first();
      return jinja::call(in, definition != nullptr ? *definition : known(name), input, values);
    });
  }

  Expression filter(Expression input) {
    skip("|");
    const int line = current().line;
    Parts parts = list(std::move(input));
    const std::string name = expect_name();
    if (is("(")) arguments(parts);
    return applied(line, find_filter(name), name, known_filter, std::move(parts));
  }

  Expression test(Expression input) {
    const int line = take().line;
    const bool differs = skip("not");
    Parts parts = list(std::move(input));
    const std::string name = expect_name();
    const bool operand = is(TokenKind::name) || is(TokenKind::string) || is(TokenKind::integer) ||
                         is(TokenKind::real) || is("[") || is("{");
    if (is("(")) {
      arguments(parts);
    } else if (operand && !is("else") && !is("or") && !is("and")) {
      if (is("is")) refuse("tests cannot be chained with 'is'");
      parts.all.push_back(postfix(primary()));
    }
    Expression result = applied(line, find_test(name), name, known_test, std::move(parts));
    return differs ? node(line, list(std::move(result)), opposite) : std::move(result);
  }

  std::vector<Token> tokens_;
  int& line_;
  std::size_t at_ = 0;
  int level_ = 0;
  std::vector<Macro*> macros_;  // those that are open
};

}  // namespace focus::jinja
