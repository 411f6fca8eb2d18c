#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/jinja/ast.h"
#include "data/chat/jinja/lexer.h"

namespace focus::jinja {

/// Expressions of a template, with Jinja's precedence. For statement_parser.cpp.
class ExpressionParser {
 public:
  /// `line` is kept at the line that has been reached, for errors.
  ExpressionParser(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) {
    line_ = current().line;
  }

 protected:
  static inline const std::map<std::string_view, Value> kConstants = {
      {"true", Value::boolean(true)},   {"True", Value::boolean(true)},
      {"false", Value::boolean(false)}, {"False", Value::boolean(false)},
      {"none", Value::none()},          {"None", Value::none()}};

  static void add_argument(Expression& to, ExpressionPtr argument) {
    to.depth = std::max(to.depth, argument->depth + 1);
    to.args.push_back(std::move(argument));
  }

  static std::string shown_token(const Token& token) {
    if (token.kind == TokenKind::end) return "the end of the template";
    if (token.kind == TokenKind::data) return "text";
    return fmt::format("'{}'", token.text.substr(0, 40));
  }

  const Token& current() const { return tokens_[at_]; }
  const Token& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is(std::string_view name_or_op) const {
    return (is(TokenKind::name) || is(TokenKind::op)) && current().text == name_or_op;
  }

  using Parse = ExpressionPtr (ExpressionParser::*)();
  struct Operator {
    std::string_view text;
    Op op;
  };

  std::vector<Statement*> macros_;  // those that are open

  /// One level of brackets or blocks.
  Nesting nested() { return {level_, kMostSourceDepth, "brackets and blocks nested"}; }

  template <class... Args>
  static ExpressionPtr node(Op op, int line, Args... args) {
    std::vector<ExpressionPtr> all;
    (all.push_back(std::move(args)), ...);
    return node(op, line, std::move(all));
  }

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
    refuse("expected {}, found {}", wanted, shown_token(current()));
  }

  void expect(std::string_view op) {
    if (!skip(op)) unexpected(fmt::format("'{}'", op));
  }

  void expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) unexpected(what);
    take();
  }

  std::string expect_name() {
    if (!is(TokenKind::name)) unexpected("a name");
    return std::string(take().text);
  }

  static ExpressionPtr node(Op op, int line, std::vector<ExpressionPtr> args) {
    auto result = std::make_unique<Expression>();
    result->op = op;
    result->line = line;
    result->args = std::move(args);
    for (const auto& arg : result->args)
      if (arg) result->depth = std::max(result->depth, arg->depth + 1);
    // A chain of operators is nested too, though nothing recursed to read it.
    if (result->depth > 2 * kMostSourceDepth)
      refuse("an expression nested deeper than {} levels", 2 * kMostSourceDepth);
    return result;
  }

  /// Commas make a tuple. `with_condition` false: no inline if, which is the for's own.
  ExpressionPtr tuple(bool with_condition, bool in_brackets = false) {
    const int line = current().line;
    const auto ends = [&] {
      return is(TokenKind::variable_end) || is(TokenKind::block_end) || is(")") ||
             (!with_condition && is("recursive"));
    };
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    while (!ends()) {
      items.push_back(with_condition ? condition() : logical_or());
      if (!is(",")) break;
      is_tuple = true;
      take();
    }
    if (!is_tuple && items.size() == 1) return std::move(items[0]);
    if (!is_tuple && !in_brackets) unexpected("an expression");
    return node(Op::tuple, line, std::move(items));
  }

  ExpressionPtr expression() { return condition(); }

  ExpressionPtr condition() {
    const Nesting level = nested();
    int line = current().line;
    ExpressionPtr result = logical_or();
    while (skip("if")) {
      ExpressionPtr test = logical_or(), otherwise;
      if (skip("else")) otherwise = condition();
      result = node(Op::condition, line, std::move(test), std::move(result), std::move(otherwise));
      line = current().line;
    }
    return result;
  }

  /// operand, or a chain of operands and operators of one level, from the left.
  ExpressionPtr binary(std::span<const Operator> operators, Parse operand) {
    ExpressionPtr left = (this->*operand)();
    for (;;) {
      const auto found = std::ranges::find(operators, current().text, &Operator::text);
      if (found == operators.end() || !is(found->text)) return left;
      const int line = take().line;
      left = node(found->op, line, std::move(left), (this->*operand)());
    }
  }

  ExpressionPtr logical_or() {
    static constexpr Operator kOr[] = {{"or", Op::logical_or}};
    return binary(kOr, &ExpressionParser::logical_and);
  }

  ExpressionPtr logical_and() {
    static constexpr Operator kAnd[] = {{"and", Op::logical_and}};
    return binary(kAnd, &ExpressionParser::logical_not);
  }

  ExpressionPtr logical_not() {
    if (!is("not")) return compare();
    const Nesting level = nested();
    const int line = take().line;
    return node(Op::logical_not, line, logical_not());
  }

  ExpressionPtr compare() {
    static const std::map<std::string_view, Comparison> kOps = {
        {"==", Comparison::eq}, {"!=", Comparison::ne}, {"<", Comparison::lt},
        {"<=", Comparison::le}, {">", Comparison::gt},  {">=", Comparison::ge}};
    const int line = current().line;
    std::vector<ExpressionPtr> operands;
    operands.push_back(sum());
    std::vector<Comparison> compares;
    for (;;) {
      const auto op = is(TokenKind::op) ? kOps.find(current().text) : kOps.end();
      if (op != kOps.end()) {
        compares.push_back(op->second);
      } else if (is("in")) {
        compares.push_back(Comparison::in);
      } else if (is("not") && next_token().kind == TokenKind::name && next_token().text == "in") {
        take();
        compares.push_back(Comparison::not_in);
      } else {
        break;
      }
      take();
      operands.push_back(sum());
    }
    if (compares.empty()) return std::move(operands[0]);
    ExpressionPtr result = node(Op::compare, line, std::move(operands));
    result->compares = std::move(compares);
    return result;
  }

  ExpressionPtr sum() {
    static constexpr Operator kSum[] = {{"+", Op::add}, {"-", Op::subtract}};
    return binary(kSum, &ExpressionParser::concat);
  }

  ExpressionPtr concat() {
    const int line = current().line;
    std::vector<ExpressionPtr> parts;
    do parts.push_back(product());
    while (skip("~"));
    if (parts.size() == 1) return std::move(parts[0]);
    return node(Op::concat, line, std::move(parts));
  }

  ExpressionPtr product() {
    static constexpr Operator kProduct[] = {
        {"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}};
    return binary(kProduct, &ExpressionParser::power);
  }

  ExpressionPtr power() {
    static constexpr Operator kPower[] = {{"**", Op::power}};
    return binary(kPower, &ExpressionParser::filtered);
  }

  ExpressionPtr filtered() {
    ExpressionPtr result = unary();
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

  ExpressionPtr unary() {
    if (!is("-") && !is("+")) return postfix(primary());
    const Nesting level = nested();
    const Token sign = take();
    return postfix(node(sign.text == "-" ? Op::negative : Op::positive, sign.line, unary()));
  }

  ExpressionPtr primary() {
    switch (current().kind) {
      case TokenKind::name:
        return name_or_constant();
      case TokenKind::string:
        return string();
      case TokenKind::integer:
      case TokenKind::real:
        return number();
      default:
        break;
    }
    const Nesting level = nested();
    const Token open = current();
    std::vector<ExpressionPtr> items;
    if (skip("[")) {
      each_part("]", [&] { items.push_back(expression()); });
      return node(Op::list, open.line, std::move(items));
    }
    if (skip("{")) {
      each_part("}", [&] {
        items.push_back(expression());
        expect(":");
        items.push_back(expression());
      });
      return node(Op::mapping, open.line, std::move(items));
    }
    if (!skip("(")) unexpected("an expression");
    ExpressionPtr result = tuple(true, true);
    expect(")");
    return result;
  }

  ExpressionPtr name_or_constant() {
    const Token token = take();
    ExpressionPtr result = node(Op::constant, token.line);
    if (const auto constant = kConstants.find(token.text); constant != kConstants.end()) {
      result->value = constant->second;
      return result;
    }
    result->op = Op::name;
    result->name = token.text;
    if (!macros_.empty()) {
      macros_.back()->uses_varargs |= token.text == "varargs";
      macros_.back()->uses_kwargs |= token.text == "kwargs";
      macros_.back()->uses_caller |= token.text == "caller";
    }
    return result;
  }

  ExpressionPtr string() {
    ExpressionPtr result = node(Op::constant, current().line);
    std::string text;
    while (is(TokenKind::string)) {
      text += string_of(current().text);
      take();
    }
    result->value = Value::constant(std::move(text));
    return result;
  }

  ExpressionPtr number() {
    const Token token = take();
    std::string text(token.text);
    std::erase(text, '_');
    ExpressionPtr result = node(Op::constant, token.line);
    if (token.kind == TokenKind::real) {
      result->value = Value::real(std::strtod(text.c_str(), nullptr));
      return result;
    }
    const char letter = text.size() > 2 ? static_cast<char>(text[1] | 0x20) : '0';
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    const std::size_t first = base == 10 ? 0 : 2;
    std::int64_t value = 0;
    const auto read = std::from_chars(text.data() + first, text.data() + text.size(), value, base);
    if (read.ec != std::errc()) refuse("the number {} does not fit in 64 bits", text.substr(0, 40));
    result->value = Value::integer(value);
    return result;
  }

  ExpressionPtr call(ExpressionPtr called) {
    ExpressionPtr result = node(Op::call, current().line, std::move(called));
    arguments(*result);
    return result;
  }

  ExpressionPtr postfix(ExpressionPtr result) {
    for (;;) {
      if (is(".") || is("["))
        result = subscript(std::move(result));
      else if (is("("))
        result = call(std::move(result));
      else
        return result;
    }
  }

  ExpressionPtr subscript(ExpressionPtr object) {
    const Token open = take();
    if (open.text == ".") {
      const Token token = take();
      if (token.kind == TokenKind::name) {
        ExpressionPtr result = node(Op::attribute, open.line, std::move(object));
        result->name = token.text;
        result->value = Value::constant(result->name);
        return result;
      }
      if (token.kind != TokenKind::integer) refuse("expected a name or number after '.'");
      --at_;
      return node(Op::item, open.line, std::move(object), number());
    }
    const Nesting level = nested();
    std::vector<ExpressionPtr> indices;
    while (!is("]")) {
      if (!indices.empty()) expect(",");
      indices.push_back(subscribed());
    }
    take();
    ExpressionPtr index = indices.size() == 1 ? std::move(indices[0])
                                              : node(Op::tuple, open.line, std::move(indices));
    return node(Op::item, open.line, std::move(object), std::move(index));
  }

  ExpressionPtr subscribed() {
    const int line = current().line;
    std::vector<ExpressionPtr> parts(3);
    if (!is(":")) {
      parts[0] = expression();
      if (!is(":")) return std::move(parts[0]);
    }
    take();
    const auto ends = [&] { return is(":") || is("]") || is(","); };
    if (!ends()) parts[1] = expression();
    if (skip(":") && !ends()) parts[2] = expression();
    return node(Op::slice, line, std::move(parts));
  }

  void arguments(Expression& call) {
    const Nesting level = nested();
    expect("(");
    each_part(")", [&] {
      if (is("*") || is("**"))
        refuse("'{}' in the arguments of a call is not supported", current().text);
      if (is(TokenKind::name) && next_token().kind == TokenKind::op && next_token().text == "=") {
        call.names.emplace_back(take().text);
        take();
      } else if (!call.names.empty()) {
        refuse("an argument without a name follows one with a name");
      }
      add_argument(call, expression());
    });
  }

  /// `|name(...)` after `input`, which is null in a block: the text that comes.
  ExpressionPtr filters(ExpressionPtr input) {
    while (is("|")) input = filter(std::move(input));
    return input;
  }

  ExpressionPtr filter(ExpressionPtr input) {
    skip("|");
    ExpressionPtr result = node(Op::filter, current().line, std::move(input));
    result->name = expect_name();
    result->definition = find_filter(result->name);
    if (result->definition == nullptr)
      refuse("the filter '{}' is {}", result->name, missing_filter(result->name));
    if (is("(")) arguments(*result);
    return result;
  }

  ExpressionPtr test(ExpressionPtr input) {
    const int line = take().line;
    const bool negated = skip("not");
    ExpressionPtr result = node(Op::test, line, std::move(input));
    result->name = expect_name();
    result->definition = find_test(result->name);
    if (result->definition == nullptr) refuse("the test '{}' is unknown", result->name);
    const bool operand = is(TokenKind::name) || is(TokenKind::string) || is(TokenKind::integer) ||
                         is(TokenKind::real) || is("[") || is("{");
    if (is("(")) {
      arguments(*result);
    } else if (operand && !is("else") && !is("or") && !is("and")) {
      if (is("is")) refuse("tests cannot be chained with 'is'");
      add_argument(*result, postfix(primary()));
    }
    return negated ? node(Op::logical_not, line, std::move(result)) : std::move(result);
  }

  ExpressionPtr target_part(bool members) {
    const int line = current().line;
    if (is("(")) {
      const Nesting level = nested();
      take();
      ExpressionPtr result = target(members);
      expect(")");
      return result;
    }
    const std::string name = expect_name();
    if (name == "loop" || kConstants.contains(name)) refuse("'{}' cannot be assigned to", name);
    ExpressionPtr result = node(Op::name, line);
    result->name = name;
    if (members && skip(".")) {
      result->op = Op::member;
      result->names.push_back(expect_name());
    }
    return result;
  }

  /// Names, or tuples of them, that are assigned to.
  ExpressionPtr target(bool members) {
    const int line = current().line;
    std::vector<ExpressionPtr> parts;
    parts.push_back(target_part(members));
    bool is_tuple = false;
    while (skip(",")) {
      is_tuple = true;
      if (is("in") || is("=") || is(")") || is(TokenKind::block_end)) break;
      parts.push_back(target_part(members));
    }
    if (!is_tuple) return std::move(parts[0]);
    return node(Op::tuple, line, std::move(parts));
  }

  std::vector<Token> tokens_;
  int& line_;
  std::size_t at_ = 0;
  int level_ = 0;
};

}  // namespace focus::jinja
