#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include "data/chat/jinja/parser.h"

namespace focus::jinja {
namespace {

std::vector<ExpressionPtr> both(ExpressionPtr a, ExpressionPtr b) {
  std::vector<ExpressionPtr> args;
  args.push_back(std::move(a));
  args.push_back(std::move(b));
  return args;
}

std::vector<ExpressionPtr> one(ExpressionPtr a) {
  std::vector<ExpressionPtr> args;
  args.push_back(std::move(a));
  return args;
}

std::string shown_token(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::data:
      return "text";
    default:
      return fmt::format("'{}'", token.text.substr(0, 40));
  }
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

ExpressionPtr ExpressionParser::node(Op op, int line, std::vector<ExpressionPtr> args) const {
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
    std::vector<ExpressionPtr> args = both(std::move(test), std::move(result));
    args.push_back(std::move(otherwise));
    result = node(Op::condition, line, std::move(args));
    line = current().line;
  }
  return result;
}

ExpressionPtr ExpressionParser::logical_or() {
  ExpressionPtr left = logical_and();
  for (int line = current().line; skip_name("or"); line = current().line)
    left = node(Op::logical_or, line, both(std::move(left), logical_and()));
  return left;
}

ExpressionPtr ExpressionParser::logical_and() {
  ExpressionPtr left = logical_not();
  for (int line = current().line; skip_name("and"); line = current().line)
    left = node(Op::logical_and, line, both(std::move(left), logical_not()));
  return left;
}

ExpressionPtr ExpressionParser::logical_not() {
  if (!is_name("not")) return compare();
  const Level level(*this);
  const int line = take().line;
  return node(Op::logical_not, line, one(logical_not()));
}

ExpressionPtr ExpressionParser::compare() {
  static const std::map<std::string_view, Comparison> kOps = {
      {"==", Comparison::eq}, {"!=", Comparison::ne}, {"<", Comparison::lt},
      {"<=", Comparison::le}, {">", Comparison::gt},  {">=", Comparison::ge}};
  const int line = current().line;
  std::vector<ExpressionPtr> operands = one(sum());
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
  ExpressionPtr left = concat();
  while (is_op("+") || is_op("-")) {
    const Token op = take();
    left = node(op.text == "+" ? Op::add : Op::subtract, op.line, both(std::move(left), concat()));
  }
  return left;
}

ExpressionPtr ExpressionParser::concat() {
  const int line = current().line;
  std::vector<ExpressionPtr> parts = one(product());
  while (skip_op("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts[0]);
  return node(Op::concat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const Token token = take();
    const Op op = token.text == "*"    ? Op::multiply
                  : token.text == "/"  ? Op::divide
                  : token.text == "//" ? Op::floor_divide
                                       : Op::modulo;
    left = node(op, token.line, both(std::move(left), power()));
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (is_op("**")) {
    const int line = take().line;
    left = node(Op::power, line, both(std::move(left), unary(true)));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr result;
  if (is_op("-") || is_op("+")) {
    const Level level(*this);
    const Token op = take();
    result = node(op.text == "-" ? Op::negative : Op::positive, op.line, one(unary(false)));
  } else {
    result = primary();
  }
  result = postfix(std::move(result));
  return with_filters ? filters_and_tests(std::move(result)) : std::move(result);
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
  if (is_op("[")) return list();
  if (is_op("{")) return mapping();
  if (!skip_op("(")) unexpected("an expression");
  ExpressionPtr result = tuple(true, true);
  expect_op(")");
  return result;
}

void ExpressionParser::tell_name(std::string_view name) {
  if (macros_.empty()) return;
  if (name == "varargs") macros_.back().varargs = true;
  if (name == "kwargs") macros_.back().kwargs = true;
  if (name == "caller") macros_.back().caller = true;
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const Token token = take();
  ExpressionPtr result = node(Op::constant, token.line);
  if (token.text == "true" || token.text == "True" || token.text == "false" ||
      token.text == "False") {
    result->value = Value::boolean(token.text == "true" || token.text == "True");
  } else if (token.text == "none" || token.text == "None") {
    result->value = Value::none();
  } else {
    result->op = Op::name;
    result->name = token.text;
    tell_name(token.text);
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

ExpressionPtr ExpressionParser::list() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!is_op("]")) {
    if (!items.empty()) expect_op(",");
    if (is_op("]")) break;
    items.push_back(expression());
  }
  take();
  return node(Op::list, line, std::move(items));
}

ExpressionPtr ExpressionParser::mapping() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!is_op("}")) {
    if (!items.empty()) expect_op(",");
    if (is_op("}")) break;
    items.push_back(expression());
    expect_op(":");
    items.push_back(expression());
  }
  take();
  return node(Op::mapping, line, std::move(items));
}

ExpressionPtr ExpressionParser::call(ExpressionPtr called) {
  ExpressionPtr result = node(Op::call, current().line, one(std::move(called)));
  arguments(*result);
  return result;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr result) {
  for (;;) {
    if (is_op(".") || is_op("[")) {
      result = subscript(std::move(result));
    } else if (is_op("(")) {
      result = call(std::move(result));
    } else {
      return result;
    }
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr result) {
  for (;;) {
    if (is_op("|")) {
      result = filter(std::move(result));
    } else if (is_name("is")) {
      result = test(std::move(result));
    } else if (is_op("(")) {
      result = call(std::move(result));
    } else {
      return result;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const Token open = take();
  if (open.text == ".") {
    const Token token = take();
    if (token.kind == TokenKind::name) {
      ExpressionPtr result = node(Op::attribute, open.line, one(std::move(object)));
      result->name = token.text;
      result->value = Value::constant(result->name);
      return result;
    }
    if (token.kind != TokenKind::integer) refuse("expected a name or number after '.'");
    --at_;
    ExpressionPtr index = number();
    return node(Op::item, open.line, both(std::move(object), std::move(index)));
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
  return node(Op::item, open.line, both(std::move(object), std::move(index)));
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
  while (!is_op(")")) {
    if (is_op("*") || is_op("**"))
      refuse("'{}' in the arguments of a call is not supported", current().text);
    if (is(TokenKind::name) && next_token().kind == TokenKind::op && next_token().text == "=") {
      call.names.emplace_back(take().text);
      take();
    } else if (!call.names.empty()) {
      refuse("an argument without a name follows one with a name");
    }
    call.args.push_back(expression());
    call.depth = std::max(call.depth, call.args.back()->depth + 1);
    if (!is_op(")")) expect_op(",");
  }
  take();
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input) {
  while (is_op("|")) input = filter(std::move(input));
  return input;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr input) {
  skip_op("|");
  ExpressionPtr result = node(Op::filter, current().line, one(std::move(input)));
  result->name = expect_name();
  result->body = find_filter(result->name);
  if (result->body == nullptr)
    refuse("the filter '{}' is {}", result->name,
           is_known_filter(result->name) ? "not supported" : "unknown");
  if (is_op("(")) arguments(*result);
  return result;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  const int line = take().line;
  const bool negated = skip_name("not");
  ExpressionPtr result = node(Op::test, line, one(std::move(input)));
  result->name = expect_name();
  result->body = find_test(result->name);
  if (result->body == nullptr) refuse("the test '{}' is unknown", result->name);
  const bool operand = is(TokenKind::name) || is(TokenKind::string) || is(TokenKind::integer) ||
                       is(TokenKind::real) || is_op("[") || is_op("{");
  if (is_op("(")) {
    arguments(*result);
  } else if (operand && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) refuse("tests cannot be chained with 'is'");
    result->args.push_back(postfix(primary()));
    result->depth = std::max(result->depth, result->args.back()->depth + 1);
  }
  return negated ? node(Op::logical_not, line, one(std::move(result))) : std::move(result);
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
  if (name == "loop" || name == "true" || name == "false" || name == "none" || name == "True" ||
      name == "False" || name == "None")
    refuse("'{}' cannot be assigned to", name);
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
  std::vector<ExpressionPtr> parts = one(target_part(members));
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
