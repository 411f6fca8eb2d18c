#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/jinja/ast.h"
#include "data/chat/jinja/lexer.h"

namespace focus::jinja {

/// Expressions of a template, with Jinja's precedence.
class ExpressionParser {
 public:
  /// `line` is kept at the line that has been reached, for errors.
  ExpressionParser(std::vector<Token> tokens, int& line);

 protected:
  /// One level of brackets or blocks, refused beyond kMostSourceDepth.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_name(std::string_view name) const {
    return is(TokenKind::name) && current().text == name;
  }
  bool is_op(std::string_view op) const { return is(TokenKind::op) && current().text == op; }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect_op(std::string_view op);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;

  static ExpressionPtr node(Op op, int line, std::vector<ExpressionPtr> args);
  template <class... Args>
  static ExpressionPtr node(Op op, int line, Args... args) {
    std::vector<ExpressionPtr> all;
    (all.push_back(std::move(args)), ...);
    return node(op, line, std::move(all));
  }
  /// Commas make a tuple. `condition` false: no inline if, which is the for's own.
  ExpressionPtr tuple(bool condition, bool in_brackets = false);
  ExpressionPtr expression() { return condition(); }
  ExpressionPtr logical_or();
  ExpressionPtr primary();
  /// `|name(...)` after `input`, which is null in a block: the text that comes.
  ExpressionPtr filters(ExpressionPtr input);
  ExpressionPtr filter(ExpressionPtr input);
  /// Names, or tuples of them, that are assigned to.
  ExpressionPtr target(bool members);
  void arguments(Expression& call);

  struct MacroUse {
    bool varargs = false, kwargs = false, caller = false;
  };
  std::vector<MacroUse> macros_;  // those that are open

 private:
  using Parse = ExpressionPtr (ExpressionParser::*)();
  struct Operator {
    std::string_view text;
    Op op;
  };

  ExpressionPtr condition();
  /// operand, or a chain of operands and operators of one level, from the left.
  ExpressionPtr binary(std::span<const Operator> operators, Parse operand);
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr compare();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr filtered();
  ExpressionPtr unary();
  ExpressionPtr call(ExpressionPtr called);
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr test(ExpressionPtr input);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr subscribed();
  ExpressionPtr name_or_constant();
  ExpressionPtr string();
  ExpressionPtr number();
  ExpressionPtr target_part(bool members);
  /// Calls `read` for each of the parts between commas, up to and with `close`.
  template <class Read>
  void each_part(std::string_view close, Read&& read) {
    for (bool first = true; !is_op(close); first = false) {
      if (!first) expect_op(",");
      if (!is_op(close)) read();
    }
    take();
  }

  std::vector<Token> tokens_;
  int& line_;
  std::size_t at_ = 0;
  int level_ = 0;
};

/// The statements of a normalised template. Refuses what Jinja does not know and what this program
/// leaves out, by name. `line` is the line that has been reached.
Block parse_template(std::string_view source, int& line);

}  // namespace focus::jinja
