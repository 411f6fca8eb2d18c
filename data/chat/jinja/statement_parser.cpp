#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "data/chat/jinja/expression_parser.h"

namespace focus::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;

/// Tags that Jinja has and this program leaves out: what they do needs other templates or HTML.
constexpr std::array<std::string_view, 7> kLeftOut = {"extends", "include",    "import", "from",
                                                      "block",   "autoescape", "trans"};

class TemplateParser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Block run() {
    Block block = body({});
    if (!is(TokenKind::end)) unexpected("text or a tag");
    return block;
  }

 private:
  using Names = std::vector<std::string_view>;

  StatementPtr make(StatementKind kind, int line) const {
    auto result = std::make_unique<Statement>();
    result->kind = kind;
    result->line = line;
    return result;
  }

  /// Statements up to a tag of one of these names, which is the current token then; without names
  /// up to the end.
  Block body(const Names& ends) {
    const Nesting level = nested();
    Block block;
    for (;;) {
      const int line = current().line;
      if (is(TokenKind::data)) {
        block.push_back(make(StatementKind::data, line));
        block.back()->value = Value::constant(std::string(take().text));
      } else if (is(TokenKind::variable_begin)) {
        take();
        block.push_back(make(StatementKind::output, line));
        block.back()->expression = tuple(true);
        expect(TokenKind::variable_end, "'}}'");
      } else if (is(TokenKind::block_begin)) {
        take();
        if (is(TokenKind::name) && std::ranges::find(ends, current().text) != ends.end())
          return block;
        block.push_back(statement(ends));
        expect(TokenKind::block_end, "'%}'");
      } else {
        if (!ends.empty()) refuse("the template ends before '{}'", fmt::join(ends, "' or '"));
        return block;
      }
    }
  }

  /// The end of a tag, and what it holds, up to one of these tags. Takes the tag's name where there
  /// is one alone.
  Block inner(const Names& ends) {
    skip(":");
    expect(TokenKind::block_end, "'%}'");
    Block block = body(ends);
    if (ends.size() == 1) take();
    return block;
  }

  StatementPtr statement(const Names& ends) {
    using ParseTag = StatementPtr (TemplateParser::*)();
    static const std::map<std::string_view, ParseTag> kTags = {
        {"if", &TemplateParser::branch},
        {"for", &TemplateParser::loop},
        {"set", &TemplateParser::assign},
        {"macro", &TemplateParser::macro},
        {"call", &TemplateParser::call_block},
        {"filter", &TemplateParser::filter_block},
        {"with", &TemplateParser::with},
        {"print", &TemplateParser::print},
        {"break", &TemplateParser::loop_control},
        {"continue", &TemplateParser::loop_control},
        {"generation", &TemplateParser::generation}};
    if (!is(TokenKind::name)) unexpected("the name of a tag");
    const auto found = kTags.find(current().text);
    if (found != kTags.end()) return (this->*found->second)();
    if (std::ranges::find(kLeftOut, current().text) != kLeftOut.end())
      refuse("the tag '{}' is not supported", current().text);
    refuse("an unknown tag '{}'{}", current().text,
           ends.empty() ? "" : fmt::format(" where '{}' may come", fmt::join(ends, "' or '")));
  }

  StatementPtr branch() {
    StatementPtr result = make(StatementKind::branch, take().line);
    for (;;) {
      Branch part{tuple(false), {}};
      part.body = inner({"elif", "else", "endif"});
      result->branches.push_back(std::move(part));
      const std::string_view end = take().text;
      if (end == "elif") continue;
      if (end == "else") result->branches.push_back({nullptr, inner({"endif"})});
      return result;
    }
  }

  StatementPtr loop() {
    StatementPtr result = make(StatementKind::loop, take().line);
    result->target = target(false);
    if (!skip("in")) unexpected("'in'");
    result->expression = tuple(false);
    if (skip("if")) result->condition = expression();
    if (is("recursive")) refuse("a recursive for loop is not supported");
    ++loops_;
    result->body = inner({"endfor", "else"});
    --loops_;
    if (take().text == "else") result->otherwise = inner({"endfor"});
    return result;
  }

  StatementPtr assign() {
    StatementPtr result = make(StatementKind::assign, take().line);
    result->target = target(true);
    if (skip("=")) {
      result->expression = tuple(true);
      return result;
    }
    result->kind = StatementKind::assign_block;
    result->expression = filters(nullptr);
    result->body = inner({"endset"});
    return result;
  }

  void signature(Statement& of) {
    expect("(");
    while (!is(")")) {
      if (!of.parameters.empty()) expect(",");
      Parameter parameter;
      parameter.name = expect_name();
      if (skip("="))
        parameter.value = expression();
      else if (!of.parameters.empty() && of.parameters.back().value)
        refuse("the parameter '{}' without a default follows one with a default", parameter.name);
      of.parameters.push_back(std::move(parameter));
    }
    take();
  }

  /// A body that is called: a break in it would leave no loop.
  void called_body(Statement& of, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&of);
    of.body = inner({end});
    macros_.pop_back();
    loops_ = loops;
  }

  StatementPtr macro() {
    StatementPtr result = make(StatementKind::macro, take().line);
    result->name = expect_name();
    signature(*result);
    called_body(*result, "endmacro");
    return result;
  }

  StatementPtr call_block() {
    StatementPtr result = make(StatementKind::call_block, take().line);
    result->name = "caller";
    if (is("(")) signature(*result);
    result->expression = expression();
    if (result->expression->op != Op::call) refuse("'call' needs a call");
    called_body(*result, "endcall");
    return result;
  }

  StatementPtr filter_block() {
    StatementPtr result = make(StatementKind::filter_block, take().line);
    result->expression = filters(filter(nullptr));
    result->body = inner({"endfilter"});
    return result;
  }

  StatementPtr with() {
    StatementPtr result = make(StatementKind::with, take().line);
    while (!is(TokenKind::block_end)) {
      if (!result->parameters.empty()) expect(",");
      Parameter parameter;
      parameter.target = target(false);
      expect("=");
      parameter.value = expression();
      result->parameters.push_back(std::move(parameter));
    }
    result->body = inner({"endwith"});
    return result;
  }

  StatementPtr print() {
    StatementPtr result = make(StatementKind::scope, take().line);
    while (!is(TokenKind::block_end)) {
      if (!result->body.empty()) expect(",");
      result->body.push_back(make(StatementKind::output, current().line));
      result->body.back()->expression = expression();
    }
    return result;
  }

  StatementPtr generation() {
    StatementPtr result = make(StatementKind::scope, take().line);
    called_body(*result, "endgeneration");
    return result;
  }

  StatementPtr loop_control() {
    if (loops_ == 0) refuse("'{}' outside of a loop", current().text);
    const bool breaks = is("break");
    return make(breaks ? StatementKind::break_loop : StatementKind::continue_loop, take().line);
  }

  int loops_ = 0;  // that are open
};

}  // namespace

Block parse_template(std::string_view source, int& line) {
  std::vector<Token> tokens = tokenize(source, line);
  return TemplateParser(std::move(tokens), line).run();
}

}  // namespace focus::jinja
