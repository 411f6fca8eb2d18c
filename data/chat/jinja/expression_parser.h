#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/lexer.h"
#include "data/chat/jinja/operators.h"

namespace focus::jinja {

/// Reads expressions of a template, with Jinja's precedence. For parser.cpp.
class ExpressionParser {
 public:
  /// `line` is kept at the line that has been reached, for errors.
  ExpressionParser(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) {
    line_ = current().line;
  }

 protected:
  using Parts = std::vector<Expression>;
  using Give = Value (*)(Interpreter&, const Parts&);
  using Parse = Expression (ExpressionParser::*)();
  using Target = std::function<void(Interpreter&, const Value&)>;
  struct Operator {
    std::string_view text;
    Give give;
  };

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

  /// An expression of that line, which `give` computes with the values of `parts`.
  template <class How>
  static Expression node(int line, Parts parts, How give) {
    int depth = 1;
    for (const Expression& part : parts) depth = std::max(depth, part.depth + 1);
    // A chain of operators is nested too, though nothing recursed to read it.
    if (depth > 2 * kMostSourceDepth)
      refuse("an expression nested deeper than {} levels", 2 * kMostSourceDepth);
    return {[line, all = std::make_shared<const Parts>(std::move(parts)),
             give = std::move(give)](Interpreter& in) {
              const Nesting level = in.deeper();
              in.budget.step();
              const int before = std::exchange(in.line, line);
              Value value = give(in, *all);
              in.line = before;
              return value;
            },
            depth};
  }

  template <class... All>
  static Parts list(All... all) {
    Parts parts;
    (parts.push_back(std::move(all)), ...);
    return parts;
  }

  static Expression constant(int line, Value value) {
    return node(line, {}, [value = std::move(value)](Interpreter&, const Parts&) { return value; });
  }

  static std::vector<Value> values(Interpreter& in, const Parts& parts) {
    std::vector<Value> values;
    for (const Expression& part : parts) values.push_back(part(in));
    return values;
  }

  template <Kind kind>
  static Value sequence(Interpreter& in, const Parts& parts) {
    return Value::sequence(in.budget, kind, values(in, parts));
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
      items.push_back(with_condition ? expression() : logical_or());
      if (!skip(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && items.size() == 1) return std::move(items[0]);
    if (!is_tuple && !in_brackets) unexpected("an expression");
    return node(line, std::move(items), sequence<Kind::tuple>);
  }

  Expression expression() {
    const Nesting level = nested();
    int line = current().line;
    Expression result = logical_or();
    while (skip("if")) {
      Expression test = logical_or();
      Expression otherwise =
          skip("else")
              ? expression()
              : constant(line, Value::undefined(fmt::format(
                                   "the inline if of line {} is false and has no 'else'", line)));
      result = node(line, list(std::move(test), std::move(result), std::move(otherwise)),
                    [](Interpreter& in, const Parts& parts) {
                      return truth(parts[0](in)) ? parts[1](in) : parts[2](in);
                    });
      line = current().line;
    }
    return result;
  }

  /// operand, or a chain of operands and operators of one level, from the left.
  Expression binary(std::span<const Operator> operators, Parse operand) {
    Expression left = (this->*operand)();
    for (;;) {
      const auto found = std::ranges::find(operators, current().text, &Operator::text);
      if (found == operators.end() || !is(found->text)) return left;
      const int line = take().line;
      left = node(line, list(std::move(left), (this->*operand)()), found->give);
    }
  }

  template <bool Either>
  static Value logic(Interpreter& in, const Parts& parts) {
    Value first = parts[0](in);
    return truth(first) == Either ? first : parts[1](in);
  }

  template <Op op>
  static Value calculate(Interpreter& in, const Parts& parts) {
    const Value left = parts[0](in), right = parts[1](in);
    return arithmetic(in.budget, op, left, right);
  }

  Expression logical_or() {
    static constexpr Operator kOr[] = {{"or", logic<true>}};
    return binary(kOr, &ExpressionParser::logical_and);
  }

  Expression logical_and() {
    static constexpr Operator kAnd[] = {{"and", logic<false>}};
    return binary(kAnd, &ExpressionParser::logical_not);
  }

  static Value opposite(Interpreter& in, const Parts& parts) {
    return Value::boolean(!truth(parts[0](in)));
  }

  Expression logical_not() {
    if (!is("not")) return compare();
    const Nesting level = nested();
    const int line = take().line;
    return node(line, list(logical_not()), opposite);
  }

  Expression compare() {
    static const std::map<std::string_view, Comparison> kOps = {
        {"==", Comparison::eq}, {"!=", Comparison::ne},     {"<", Comparison::lt},
        {"<=", Comparison::le}, {">", Comparison::gt},      {">=", Comparison::ge},
        {"in", Comparison::in}, {"not", Comparison::not_in}};
    const int line = current().line;
    Parts operands = list(sum());
    std::vector<Comparison> compares;
    for (;;) {
      const auto op = kOps.find(current().text);
      if (op == kOps.end() || !is(op->first)) break;
      if (is("not")) {
        if (!is_name_before("in")) break;
        take();
      }
      take();
      compares.push_back(op->second);
      operands.push_back(sum());
    }
    if (compares.empty()) return std::move(operands[0]);
    return node(line, std::move(operands), [compares](Interpreter& in, const Parts& parts) {
      Value left = parts[0](in);
      for (std::size_t i = 0; i < compares.size(); ++i) {
        Value right = parts[i + 1](in);
        if (!compared(in.budget, compares[i], left, right)) return Value::boolean(false);
        left = std::move(right);
      }
      return Value::boolean(true);
    });
  }

  Expression sum() {
    static constexpr Operator kSum[] = {{"+", calculate<Op::add>}, {"-", calculate<Op::subtract>}};
    return binary(kSum, &ExpressionParser::concat);
  }

  Expression concat() {
    const int line = current().line;
    Parts operands;
    do operands.push_back(product());
    while (skip("~"));
    if (operands.size() == 1) return std::move(operands[0]);
    return node(line, std::move(operands), [](Interpreter& in, const Parts& parts) {
      std::string text;
      for (const Expression& part : parts) text += to_text(in.budget, part(in));
      return Value::string(in.budget, std::move(text));
    });
  }

  Expression product() {
    static constexpr Operator kProduct[] = {{"*", calculate<Op::multiply>},
                                            {"/", calculate<Op::divide>},
                                            {"//", calculate<Op::floor_divide>},
                                            {"%", calculate<Op::modulo>}};
    return binary(kProduct, &ExpressionParser::power);
  }

  Expression power() {
    static constexpr Operator kPower[] = {{"**", calculate<Op::power>}};
    return binary(kPower, &ExpressionParser::filtered);
  }

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
    return postfix(node(sign.line, list(unary()),
                        [minus = sign.text == "-"](Interpreter& in, const Parts& parts) {
                          return negated(parts[0](in), minus);
                        }));
  }

  Expression primary() {
    const int line = current().line;
    switch (current().kind) {
      case TokenKind::name:
        return name_or_constant();
      case TokenKind::string: {
        std::string text;
        while (is(TokenKind::string)) text += string_of(take().text);
        return constant(line, Value::constant(std::move(text)));
      }
      case TokenKind::integer:
      case TokenKind::real:
        return number();
      default:
        break;
    }
    const Nesting level = nested();
    Parts items;
    if (skip("[")) {
      each_part("]", [&] { items.push_back(expression()); });
      return node(line, std::move(items), sequence<Kind::list>);
    }
    if (skip("{")) {
      each_part("}", [&] {
        items.push_back(expression());
        expect(":");
        items.push_back(expression());
      });
      return node(line, std::move(items), [](Interpreter& in, const Parts& parts) {
        std::vector<std::pair<Value, Value>> pairs;
        for (std::size_t i = 0; i < parts.size(); i += 2) {
          Value key = parts[i](in);
          insert(in.budget, pairs, std::move(key), parts[i + 1](in));
        }
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
    if (!macros_.empty()) {
      macros_.back()->uses_varargs |= token.text == "varargs";
      macros_.back()->uses_kwargs |= token.text == "kwargs";
      macros_.back()->uses_caller |= token.text == "caller";
    }
    return node(token.line, {}, [name = std::string(token.text)](Interpreter& in, const Parts&) {
      return in.name(name);
    });
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
    if (open.text == "." && is(TokenKind::name))
      return node(
          open.line, list(std::move(object)),
          [name = Value::constant(std::string(take().text))](Interpreter& in, const Parts& parts) {
            return in.attribute(parts[0](in), name);
          });
    Parts indices;
    if (open.text == ".") {
      if (!is(TokenKind::integer)) refuse("expected a name or number after '.'");
      indices.push_back(number());
    } else {
      const Nesting level = nested();
      while (!is("]")) {
        if (!indices.empty()) expect(",");
        indices.push_back(subscribed());
      }
      take();
    }
    Expression index = indices.size() == 1
                           ? std::move(indices[0])
                           : node(open.line, std::move(indices), sequence<Kind::tuple>);
    return node(open.line, list(std::move(object), std::move(index)),
                [](Interpreter& in, const Parts& parts) {
                  const Value from = parts[0](in);
                  return in.item(from, parts[1](in));
                });
  }

  /// What stands between the brackets of a subscript: an expression, or start:stop:step.
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

  /// Reads (...) behind `parts`, and gives the names of the last ones.
  std::vector<std::string> arguments(Parts& parts) {
    const Nesting level = nested();
    std::vector<std::string> names;
    expect("(");
    each_part(")", [&] {
      if (is("*") || is("**"))
        refuse("'{}' in the arguments of a call is not supported", current().text);
      if (is_name_before("=")) {
        names.emplace_back(take().text);
        if (std::ranges::count(names, names.back()) > 1)
          refuse("the argument '{}' is given twice", names.back());
        take();
      } else if (!names.empty()) {
        refuse("an argument without a name follows one with a name");
      }
      parts.push_back(expression());
    });
    return names;
  }

  /// The values of all parts but the first one.
  static Arguments arguments_of(Interpreter& in, const Parts& parts,
                                const std::vector<std::string>& names) {
    Arguments arguments;
    const std::size_t unnamed = parts.size() - names.size();
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (i < unnamed)
        arguments.positional.push_back(parts[i](in));
      else
        arguments.named.emplace_back(names[i - unnamed], parts[i](in));
    }
    return arguments;
  }

  Expression call(Expression called) {
    const int line = current().line;
    auto all = std::make_shared<CallParts>(CallParts{list(std::move(called)), {}});
    all->names = arguments(all->parts);
    Expression result =
        node(line, all->parts, [names = all->names](Interpreter& in, const Parts& parts) {
          const Value function = parts[0](in);
          return in.call(function, arguments_of(in, parts, names));
        });
    result.call = std::move(all);
    return result;
  }

  /// parts[0] | definition(parts[1], ...), where the last parts have these names.
  static Expression applied(int line, const Definition& definition, Parts parts,
                            std::vector<std::string> names) {
    return node(line, std::move(parts),
                [&definition, names = std::move(names)](Interpreter& in, const Parts& all) {
                  const Value input = all[0](in);
                  return jinja::call(in, definition, input, arguments_of(in, all, names));
                });
  }

  Expression filter(Expression input) {
    skip("|");
    const int line = current().line;
    Parts parts = list(std::move(input));
    const Definition& definition = known_filter(expect_name());
    std::vector<std::string> names;
    if (is("(")) names = arguments(parts);
    return applied(line, definition, std::move(parts), std::move(names));
  }

  Expression test(Expression input) {
    const int line = take().line;
    const bool differs = skip("not");
    Parts parts = list(std::move(input));
    std::vector<std::string> names;
    const Definition& definition = known_test(expect_name());
    const bool operand = is(TokenKind::name) || is(TokenKind::string) || is(TokenKind::integer) ||
                         is(TokenKind::real) || is("[") || is("{");
    if (is("(")) {
      names = arguments(parts);
    } else if (operand && !is("else") && !is("or") && !is("and")) {
      if (is("is")) refuse("tests cannot be chained with 'is'");
      parts.push_back(postfix(primary()));
    }
    Expression result = applied(line, definition, std::move(parts), std::move(names));
    return differs ? node(line, list(std::move(result)), opposite) : std::move(result);
  }

  std::vector<Token> tokens_;
  int& line_;
  std::size_t at_ = 0;
  int level_ = 0;
  std::vector<Macro*> macros_;  // those that are open
};

}  // namespace focus::jinja
