#include <array>

#include "data/chat/jinja/expression_parser.h"

namespace focus::jinja {
namespace {

using Run = std::function<Flow(Interpreter&)>;

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
  using Ends = std::vector<std::string_view>;

  static Run output(Expression value) {
    return [value = std::move(value)](Interpreter& in) {
      in.put(value(in));
      return Flow::next;
    };
  }

  /// Statements up to a tag of one of these names, which is the current token then; without names
  /// up to the end.
  Block body(const Ends& ends) {
    const Nesting level = nested();
    Block block;
    for (;;) {
      const int line = current().line;
      if (is(TokenKind::data)) {
        const Value text = Value::constant(std::string(take().text));
        block.statements.push_back({line, output(constant(line, text))});
      } else if (is(TokenKind::variable_begin)) {
        take();
        block.statements.push_back({line, output(tuple(true))});
        expect(TokenKind::variable_end, "'}}'");
      } else if (is(TokenKind::block_begin)) {
        take();
        if (is(TokenKind::name) && std::ranges::find(ends, current().text) != ends.end())
          return block;
        const int line_of_name = current().line;
        block.statements.push_back({line_of_name, statement(ends)});
        expect(TokenKind::block_end, "'%}'");
      } else {
        if (!ends.empty()) refuse("the template ends before '{}'", fmt::join(ends, "' or '"));
        return block;
      }
    }
  }

  /// The end of a tag, and what it holds, up to one of these tags. Takes the tag's name where there
  /// is one alone.
  Block inner(const Ends& ends) {
    skip(":");
    expect(TokenKind::block_end, "'%}'");
    Block block = body(ends);
    if (ends.size() == 1) take();
    return block;
  }

  Run statement(const Ends& ends) {
    using ParseTag = Run (TemplateParser::*)();
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
    const Token tag = expect(TokenKind::name, "the name of a tag");
    const auto found = kTags.find(tag.text);
    if (found != kTags.end()) return (this->*found->second)();
    line_ = tag.line;
    if (std::ranges::find(kLeftOut, tag.text) != kLeftOut.end())
      refuse("the tag '{}' is not supported", tag.text);
    refuse("an unknown tag '{}'{}", tag.text,
           ends.empty() ? "" : fmt::format(" where '{}' may come", fmt::join(ends, "' or '")));
  }

  Run branch() {
    std::vector<std::pair<Expression, Block>> branches;
    const auto add = [&](Expression condition, const Ends& ends) {
      Block block = inner(ends);
      branches.emplace_back(std::move(condition), std::move(block));
    };
    std::string_view end = "elif";
    for (; end == "elif"; end = take().text) add(tuple(false), {"elif", "else", "endif"});
    if (end == "else") add(constant(line_, Value::boolean(true)), {"endif"});
    return [branches = std::move(branches)](Interpreter& in) {
      for (const auto& [condition, block] : branches)
        if (truth(condition(in))) return in.run(block);
      return Flow::next;
    };
  }

  /// A name, a member of a namespace where that may be, or a tuple in brackets.
  Target target_part(bool members) {
    if (is("(")) {
      const Nesting level = nested();
      take();
      Target result = target(members);
      expect(")");
      return result;
    }
    const std::string name = expect_name();
    if (name == "loop" || kConstants.contains(name)) refuse("'{}' cannot be assigned to", name);
    if (members && skip("."))
      return [name, member = expect_name()](Interpreter& in, const Value& value) {
        in.set_member_of(name, member, value);
      };
    return [name](Interpreter& in, const Value& value) { in.set(name, value); };
  }

  /// Names, or tuples of them, that are assigned to.
  Target target(bool members) {
    std::vector<Target> parts;
    parts.push_back(target_part(members));
    bool is_tuple = false;
    while (skip(",")) {
      is_tuple = true;
      if (is("in") || is("=") || is(")") || is(TokenKind::block_end)) break;
      parts.push_back(target_part(members));
    }
    if (!is_tuple) return std::move(parts[0]);
    return [parts = std::move(parts)](Interpreter& in, const Value& value) {
      const std::vector<Value> items = iterate(in.budget, value);
      if (value.is_undefined() || items.size() != parts.size())
        refuse("{} names are assigned {} values", parts.size(), items.size());
      for (std::size_t i = 0; i < items.size(); ++i) parts[i](in, items[i]);
    };
  }

  struct Loop {
    Target target;
    Expression items, condition;
    Block body, otherwise;

    std::vector<Value> wanted(Interpreter& in) const {
      std::vector<Value> all = iterate(in.budget, items(in));
      if (!condition.give) return all;
      std::vector<Value> kept;
      for (Value& item : all) {
        const Interpreter::Open open(in);
        target(in, item);
        if (truth(condition(in))) kept.push_back(std::move(item));
      }
      return kept;
    }

    Flow operator()(Interpreter& in) const {
      std::vector<Value> values = wanted(in);
      in.budget.make(sizeof(LoopState));
      LoopState& loop = in.loops.emplace_back();
      loop.items = std::move(values);
      Flow flow = Flow::next;
      bool finished = false;  // a round came to its end: that, in Jinja, leaves out the else
      for (; loop.index < std::ssize(loop.items) && flow != Flow::break_loop; ++loop.index) {
        in.budget.step();
        const Interpreter::Open open(in);
        in.set("loop", Value::loop(&loop));
        target(in, loop.items[loop.index]);
        flow = in.run(body);
        finished = finished || flow == Flow::next;
      }
      if (finished) return Flow::next;
      const Interpreter::Open open(in);
      return in.run(otherwise);
    }
  };

  Run loop() {
    Loop result;
    result.target = target(false);
    if (!skip("in")) unexpected("'in'");
    result.items = tuple(false);
    if (skip("if")) result.condition = expression();
    if (is("recursive")) refuse("a recursive for loop is not supported");
    ++loops_;
    result.body = inner({"endfor", "else"});
    --loops_;
    if (take().text == "else") result.otherwise = inner({"endfor"});
    return result;
  }

  /// What filters make of the text that a block writes. `named`: the first has no '|'.
  Expression filters_of_block(bool named) {
    Expression result =
        lazy(line_, {}, [](Interpreter& in, const Parts&) { return in.captured_text; });
    for (; named || is("|"); named = false) result = filter(std::move(result));
    return result;
  }

  /// Runs the block, and gives `use` what the filters make of its text.
  template <class Use>
  static Run with_text(Block block, Expression filters, Use use) {
    return [block = std::move(block), filters = std::move(filters), use](Interpreter& in) {
      Flow flow = Flow::next;
      Value text;
      {
        const Interpreter::Open open(in);
        in.captured_text = in.captured(block, flow);
        if (flow == Flow::next) text = filters(in);
      }
      if (flow == Flow::next) use(in, text);
      return flow;
    };
  }

  Run assign() {
    Target to = target(true);
    if (skip("="))
      return [to = std::move(to), value = tuple(true)](Interpreter& in) {
        to(in, value(in));
        return Flow::next;
      };
    Expression filters = filters_of_block(false);
    return with_text(inner({"endset"}), std::move(filters), std::move(to));
  }

  Run filter_block() {
    Expression filters = filters_of_block(true);
    return with_text(inner({"endfilter"}), std::move(filters),
                     [](Interpreter& in, const Value& text) { in.put(text); });
  }

  void signature(Macro& of) {
    expect("(");
    while (!is(")")) {
      if (!of.parameters.empty()) expect(",");
      Parameter parameter{expect_name(), {}};
      if (skip("="))
        parameter.otherwise = expression();
      else if (!of.parameters.empty() && of.parameters.back().otherwise.give)
        refuse("the parameter '{}' without a default follows one with a default", parameter.name);
      of.parameters.push_back(std::move(parameter));
    }
    take();
  }

  /// A body that is called: a break in it would leave no loop.
  void called_body(Macro& of, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&of);
    of.body = inner({end});
    macros_.pop_back();
    loops_ = loops;
  }

  Run macro() {
    const auto macro = std::make_shared<Macro>(Macro{expect_name()});
    signature(*macro);
    called_body(*macro, "endmacro");
    return [macro](Interpreter& in) {
      in.set(macro->name, in.macro(*macro));
      return Flow::next;
    };
  }

  Run call_block() {
    const auto caller = std::make_shared<Macro>(Macro{"caller"});
    if (is("(")) signature(*caller);
    const Expression call = expression();
    if (!call.is_call) refuse("'call' needs a call");
    called_body(*caller, "endcall");
    return [caller, parts = call.parts](Interpreter& in) {
      Arguments arguments = parts->values(in);
      const Value function = arguments.take_first();
      arguments.named.emplace_back("caller", in.macro(*caller));
      in.put(in.call(function, arguments));
      return Flow::next;
    };
  }

  Run with() {
    std::vector<std::pair<Target, Expression>> names;
    while (!is(TokenKind::block_end)) {
      if (!names.empty()) expect(",");
      Target to = target(false);
      expect("=");
      names.emplace_back(std::move(to), expression());
    }
    return [names = std::move(names), block = inner({"endwith"})](Interpreter& in) {
      std::vector<Value> values;
      for (const auto& [to, value] : names) values.push_back(value(in));
      const Interpreter::Open open(in);
      for (std::size_t i = 0; i < values.size(); ++i) names[i].first(in, values[i]);
      return in.run(block);
    };
  }

  static Run scope(Block block) {
    return [block = std::move(block)](Interpreter& in) {
      const Interpreter::Open open(in);
      return in.run(block);
    };
  }

  Run print() {
    Block block;
    while (!is(TokenKind::block_end)) {
      if (!block.statements.empty()) expect(",");
      const int line = current().line;
      block.statements.push_back({line, output(expression())});
    }
    return scope(std::move(block));
  }

  Run generation() {
    Macro own;
    called_body(own, "endgeneration");
    return [block = scope(std::move(own.body))](Interpreter& in) {
      const std::size_t begin = in.output.size();
      const Flow flow = block(in);
      in.mark_generated(begin);
      return flow;
    };
  }

  Run loop_control() {
    const std::string_view tag = tokens_[at_ - 1].text;
    if (loops_ == 0) refuse("'{}' outside of a loop", tag);
    return [flow = tag == "break" ? Flow::break_loop : Flow::continue_loop](Interpreter&) {
      return flow;
    };
  }

  int loops_ = 0;  // that are open
};

}  // namespace

Block parse_template(std::string_view source, int& line) {
  const std::string normalized = normalized_source(source);
  return TemplateParser(tokenize(normalized, line), line).run();
}

}  // namespace focus::jinja
