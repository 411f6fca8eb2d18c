#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include "data/chat/jinja/parser.h"

namespace focus::jinja {
namespace {

const std::map<std::string_view, Value> kConstants = {
    {"true", Value::boolean(true)},   {"True", Value::boolean(true)},
    {"false", Value::boolean(false)}, {"False", Value::boolean(false)},
    {"none", Value::none()},          {"None", Value::none()}};

void add_argument(Expression& to, ExpressionPtr argument) {
  to.depth = std::max(to.depth, argument->depth + 1);
  to.args.push_back(std::move(argument));
}

std::string shown_token(const Token& token) {
  if (token.kind == TokenKind::end) return "the end of the template";
  if (token.kind == TokenKind::data) return "text";
  return fmt::format("'{}'", token.text.substr(0, 40));
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens, int& line)
    : tokens_(std::move(tokens)), line_(line) {
  line_ = current().line;
}

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.level_ > kMostSourceDepth) {
    --parser_.level_;
    refuse("brackets and blocks nested deeper than {} levels", kMostSourceDepth);
  }
}

Token ExpressionParser::take() {
  const Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  line_ = current().line;
  return token;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

void ExpressionParser::unexpected(std::string_view wanted) const {
  refuse("expected {}, found {}", wanted, shown_token(current()));
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) unexpected(what);
  take();
}

std::string ExpressionParser::expect_name() {
  if (!is(TokenKind::name)) unexpected("a name");
  return std::string(take().text);
}

ExpressionPtr ExpressionParser::node(Op op, int line, std::vector<ExpressionPtr> args) {
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

ExpressionPtr ExpressionParser::tuple(bool with_condition, bool in_brackets) {
  const int line = current().line;
  const auto ends = [&] {
    return is(TokenKind::variable_end) || is(TokenKind::block_end) || is_op(")") ||
           (!with_condition && is_name("recursive"));
  };
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!ends()) {
    items.push_back(with_condition ? condition() : logical_or());
    if (!is_op(",")) break;
    is_tuple = true;
    take();
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (!is_tuple && !in_brackets) unexpected("an expression");
  return node(Op::tuple, line, std::move(items));
}

ExpressionPtr ExpressionParser::condition() {
  const Level level(*this);
  int line = current().line;
  ExpressionPtr result = logical_or();
  while (skip_name("if")) {
    ExpressionPtr test = logical_or(), otherwise;
    if (skip_name("else")) otherwise = condition();
    result = node(Op::condition, line, std::move(test), std::move(result), std::move(otherwise));
    line = current().line;
  }
  return result;
}

ExpressionPtr ExpressionParser::binary(std::span<const Operator> operators, Parse operand) {
  ExpressionPtr left = (this->*operand)();
  for (;;) {
    const auto found = std::ranges::find(operators, current().text, &Operator::text);
    if (found == operators.end() || !(is(TokenKind::op) || is(TokenKind::name))) return left;
    const int line = take().line;
    left = node(found->op, line, std::move(left), (this->*operand)());
  }
}

ExpressionPtr ExpressionParser::logical_or() {
  static constexpr Operator kOr[] = {{"or", Op::logical_or}};
  return binary(kOr, &ExpressionParser::logical_and);
}

ExpressionPtr ExpressionParser::logical_and() {
  static constexpr Operator kAnd[] = {{"and", Op::logical_and}};
  return binary(kAnd, &ExpressionParser::logical_not);
}

ExpressionPtr ExpressionParser::logical_not() {
  if (!is_name("not")) return compare();
  const Level level(*this);
  const int line = take().line;
  return node(Op::logical_not, line, logical_not());
}

ExpressionPtr ExpressionParser::compare() {
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
    } else if (is_name("in")) {
      compares.push_back(Comparison::in);
    } else if (is_name("not") && next_token().kind == TokenKind::name &&
               next_token().text == "in") {
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

ExpressionPtr ExpressionParser::sum() {
  static constexpr Operator kSum[] = {{"+", Op::add}, {"-", Op::subtract}};
  return binary(kSum, &ExpressionParser::concat);
}

ExpressionPtr ExpressionParser::concat() {
  const int line = current().line;
  std::vector<ExpressionPtr> parts;
  do parts.push_back(product());
  while (skip_op("~"));
  if (parts.size() == 1) return std::move(parts[0]);
  return node(Op::concat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  static constexpr Operator kProduct[] = {
      {"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}};
  return binary(kProduct, &ExpressionParser::power);
}

ExpressionPtr ExpressionParser::power() {
  static constexpr Operator kPower[] = {{"**", Op::power}};
  return binary(kPower, &ExpressionParser::filtered);
}

ExpressionPtr ExpressionParser::filtered() {
  ExpressionPtr result = unary();
  for (;;) {
    if (is_op("|"))
      result = filter(std::move(result));
    else if (is_name("is"))
      result = test(std::move(result));
    else if (is_op("("))
      result = call(std::move(result));
    else
      return result;
  }
}

ExpressionPtr ExpressionParser::unary() {
  if (!is_op("-") && !is_op("+")) return postfix(primary());
  const Level level(*this);
  const Token sign = take();
  return postfix(node(sign.text == "-" ? Op::negative : Op::positive, sign.line, unary()));
}

ExpressionPtr ExpressionParser::primary() {
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
  const Level level(*this);
  const Token open = current();
  std::vector<ExpressionPtr> items;
  if (skip_op("[")) {
    each_part("]", [&] { items.push_back(expression()); });
    return node(Op::list, open.line, std::move(items));
  }
  if (skip_op("{")) {
    each_part("}", [&] {
      items.push_back(expression());
      expect_op(":");
      items.push_back(expression());
    });
    return node(Op::mapping, open.line, std::move(items));
  }
  if (!skip_op("(")) unexpected("an expression");
  ExpressionPtr result = tuple(true, true);
  expect_op(")");
  return result;
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const Token token = take();
  ExpressionPtr result = node(Op::constant, token.line);
  if (const auto constant = kConstants.find(token.text); constant != kConstants.end()) {
    result->value = constant->second;
    return result;
  }
  result->op = Op::name;
  result->name = token.text;
  if (!macros_.empty()) {
    macros_.back().varargs |= token.text == "varargs";
    macros_.back().kwargs |= token.text == "kwargs";
    macros_.back().caller |= token.text == "caller";
  }
  return result;
}

ExpressionPtr ExpressionParser::string() {
  ExpressionPtr result = node(Op::constant, current().line);
  std::string text;
  while (is(TokenKind::string)) {
    text += string_of(current().text);
    take();
  }
  result->value = Value::constant(std::move(text));
  return result;
}

ExpressionPtr ExpressionParser::number() {
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

ExpressionPtr ExpressionParser::call(ExpressionPtr called) {
  ExpressionPtr result = node(Op::call, current().line, std::move(called));
  arguments(*result);
  return result;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr result) {
  for (;;) {
    if (is_op(".") || is_op("["))
      result = subscript(std::move(result));
    else if (is_op("("))
      result = call(std::move(result));
    else
      return result;
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
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
  const Level level(*this);
  std::vector<ExpressionPtr> indices;
  while (!is_op("]")) {
    if (!indices.empty()) expect_op(",");
    indices.push_back(subscribed());
  }
  take();
  ExpressionPtr index =
      indices.size() == 1 ? std::move(indices[0]) : node(Op::tuple, open.line, std::move(indices));
  return node(Op::item, open.line, std::move(object), std::move(index));
}

ExpressionPtr ExpressionParser::subscribed() {
  const int line = current().line;
  std::vector<ExpressionPtr> parts(3);
  if (!is_op(":")) {
    parts[0] = expression();
    if (!is_op(":")) return std::move(parts[0]);
  }
  take();
  const auto ends = [&] { return is_op(":") || is_op("]") || is_op(","); };
  if (!ends()) parts[1] = expression();
  if (skip_op(":") && !ends()) parts[2] = expression();
  return node(Op::slice, line, std::move(parts));
}

void ExpressionParser::arguments(Expression& call) {
  const Level level(*this);
  expect_op("(");
  each_part(")", [&] {
    if (is_op("*") || is_op("**"))
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

ExpressionPtr ExpressionParser::filters(ExpressionPtr input) {
  while (is_op("|")) input = filter(std::move(input));
  return input;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr input) {
  skip_op("|");
  ExpressionPtr result = node(Op::filter, current().line, std::move(input));
  result->name = expect_name();
  result->definition = find_filter(result->name);
  if (result->definition == nullptr)
    refuse("the filter '{}' is {}", result->name, missing_filter(result->name));
  if (is_op("(")) arguments(*result);
  return result;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  const int line = take().line;
  const bool negated = skip_name("not");
  ExpressionPtr result = node(Op::test, line, std::move(input));
  result->name = expect_name();
  result->definition = find_test(result->name);
  if (result->definition == nullptr) refuse("the test '{}' is unknown", result->name);
  const bool operand = is(TokenKind::name) || is(TokenKind::string) || is(TokenKind::integer) ||
                       is(TokenKind::real) || is_op("[") || is_op("{");
  if (is_op("(")) {
    arguments(*result);
  } else if (operand && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) refuse("tests cannot be chained with 'is'");
    add_argument(*result, postfix(primary()));
  }
  return negated ? node(Op::logical_not, line, std::move(result)) : std::move(result);
}

ExpressionPtr ExpressionParser::target_part(bool members) {
  const int line = current().line;
  if (is_op("(")) {
    const Level level(*this);
    take();
    ExpressionPtr result = target(members);
    expect_op(")");
    return result;
  }
  const std::string name = expect_name();
  if (name == "loop" || kConstants.contains(name)) refuse("'{}' cannot be assigned to", name);
  ExpressionPtr result = node(Op::name, line);
  result->name = name;
  if (members && skip_op(".")) {
    result->op = Op::member;
    result->names.push_back(expect_name());
  }
  return result;
}

ExpressionPtr ExpressionParser::target(bool members) {
  const int line = current().line;
  std::vector<ExpressionPtr> parts;
  parts.push_back(target_part(members));
  bool is_tuple = false;
  while (skip_op(",")) {
    is_tuple = true;
    if (is_name("in") || is_op("=") || is_op(")") || is(TokenKind::block_end)) break;
    parts.push_back(target_part(members));
  }
  if (!is_tuple) return std::move(parts[0]);
  return node(Op::tuple, line, std::move(parts));
}

}  // namespace focus::jinja
