#include "data/chat/jinja/interpreter.h"

#include <algorithm>

namespace focus::jinja {

class Interpreter::Open {
 public:
  Open(Interpreter& in, Scope* parent) : in_(in), before_(in.scope_) {
    scope_.parent = parent;
    scope_.number = ++in.scopes_made_;
    in.scope_ = &scope_;
    in.open_.push_back(&scope_);
  }
  ~Open() {
    in_.open_.pop_back();
    in_.scope_ = before_;
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  Interpreter& in_;
  Scope* before_;
  Scope scope_;
};

Interpreter::Interpreter(const Limits& limits, const nlohmann::ordered_json& variables, std::tm now)
    : budget_(limits), now_(now), variables_(Value::from_json(budget_, variables)) {
  open_.push_back(&root_);
}

std::string Interpreter::render(const Block& block) {
  run(block);
  return std::move(output_);
}

void Interpreter::put(std::string_view text) {
  budget_.make(text.size());
  if (out_->size() + text.size() > budget_.limits().output)
    refuse("the template writes more than {} bytes", budget_.limits().output);
  *out_ += text;
}

Namespace* Interpreter::make_space() {
  budget_.make(sizeof(Namespace));
  return &spaces_.emplace_back();
}

const Value* Interpreter::lookup(std::string_view name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent)
    if (const Value* const value = scope->names.find(name)) return value;
  return nullptr;
}

void Interpreter::set(std::string_view name, Value value) {
  scope_->names.set(name, std::move(value));
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.op == Op::name) {
    set(target.name, value);
  } else if (target.op == Op::member) {
    const Value* const space = lookup(target.name);
    if (space == nullptr || !space->is(Kind::space))
      refuse("'{}.{}' is assigned to, but '{}' is not a namespace", target.name, target.names[0],
             target.name);
    budget_.make(sizeof(Value));
    set_member(*space->as_space(), target.names[0], value);
  } else {
    const std::vector<Value> items = iterate(budget_, value);
    if (value.is_undefined() || items.size() != target.args.size())
      refuse("{} names are assigned {} values", target.args.size(), items.size());
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.args[i], items[i]);
  }
}

Interpreter::Flow Interpreter::run(const Block& block) {
  const Nesting level = deeper();
  for (const auto& statement : block) {
    budget_.step();
    line_ = statement->line;
    if (const Flow flow = run(*statement); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::data:
      put(statement.value.as_string());
      break;
    case StatementKind::output: {
      const Value value = evaluate(*statement.expression);
      if (value.is(Kind::string))
        put(value.as_string());
      else
        put(to_text(budget_, value));
      break;
    }
    case StatementKind::branch:
      return run_branch(statement);
    case StatementKind::loop:
      return run_loop(statement);
    case StatementKind::assign:
      assign(*statement.target, evaluate(*statement.expression));
      break;
    case StatementKind::assign_block:
      return run_assign_block(statement);
    case StatementKind::macro:
      set(statement.name, macro_of(statement));
      break;
    case StatementKind::call_block:
      run_call_block(statement);
      break;
    case StatementKind::filter_block:
      return run_filter_block(statement);
    case StatementKind::with:
      return run_with(statement);
    case StatementKind::scope:
      return run_scope(statement);
    case StatementKind::break_loop:
      return Flow::break_loop;
    case StatementKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_branch(const Statement& statement) {
  for (const Branch& part : statement.branches)
    if (!part.condition || truth(evaluate(*part.condition))) return run(part.body);
  return Flow::next;
}

std::vector<Value> Interpreter::loop_items(const Statement& statement) {
  std::vector<Value> items = iterate(budget_, evaluate(*statement.expression));
  if (!statement.condition) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const Open open(*this, scope_);
    assign(*statement.target, item);
    if (truth(evaluate(*statement.condition))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement) {
  std::vector<Value> items = loop_items(statement);
  budget_.make(sizeof(LoopState));
  LoopState& loop = loops_.emplace_back();
  loop.items = std::move(items);
  Flow flow = Flow::next;
  bool finished = false;  // some round came to its end: that, in Jinja, is what leaves out the else
  for (; loop.index < std::ssize(loop.items) && flow != Flow::break_loop; ++loop.index) {
    budget_.step();
    const Open open(*this, scope_);
    set("loop", Value::loop(&loop));
    assign(*statement.target, loop.items[static_cast<std::size_t>(loop.index)]);
    flow = run(statement.body);
    finished = finished || flow == Flow::next;
  }
  if (finished) return Flow::next;
  const Open open(*this, scope_);
  return run(statement.otherwise);
}

Interpreter::Flow Interpreter::run_scope(const Statement& statement) {
  const Open open(*this, scope_);
  return run(statement.body);
}

Interpreter::Flow Interpreter::run_with(const Statement& statement) {
  std::vector<Value> values;
  for (const Parameter& parameter : statement.parameters)
    values.push_back(evaluate(*parameter.value));
  const Open open(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i)
    assign(*statement.parameters[i].target, values[i]);
  return run(statement.body);
}

Value Interpreter::captured(const Block& block, Flow& flow) {
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  flow = run(block);
  out_ = before;
  return Value::string(budget_, std::move(text));
}

Interpreter::Flow Interpreter::run_assign_block(const Statement& statement) {
  Flow flow = Flow::next;
  Value text;
  {
    const Open open(*this, scope_);
    text = captured(statement.body, flow);
    if (flow == Flow::next && statement.expression)
      text = evaluate_filter(*statement.expression, &text);
  }
  if (flow == Flow::next) assign(*statement.target, text);
  return flow;
}

Interpreter::Flow Interpreter::run_filter_block(const Statement& statement) {
  Flow flow = Flow::next;
  const Open open(*this, scope_);
  const Value text = captured(statement.body, flow);
  if (flow == Flow::next) put(to_text(budget_, evaluate_filter(*statement.expression, &text)));
  return flow;
}

void Interpreter::run_call_block(const Statement& statement) {
  const Expression& call_of = *statement.expression;
  const Value function = evaluate(*call_of.args[0]);
  Arguments arguments = arguments_of(call_of, 1);
  arguments.named.emplace_back("caller", macro_of(statement));
  put(to_text(budget_, call(function, arguments)));
}

Value Interpreter::macro_of(const Statement& statement) {
  return Value::function(budget_, {.name = statement.name,
                                   .self = {},
                                   .macro = &statement,
                                   .scope = scope_,
                                   .scope_number = scope_->number});
}

Value Interpreter::call_macro(const Function& macro, const Arguments& arguments) {
  const bool lives = std::ranges::any_of(open_, [&](const Scope* scope) {
    return scope == macro.scope && scope->number == macro.scope_number;
  });
  if (!lives) refuse("the macro '{}' was defined in a block that has ended", macro.name);
  if (depth_ + 10 > kMostEvaluationDepth)
    refuse("the template calls itself deeper than {} levels", kMostEvaluationDepth);
  const Open open(*this, macro.scope);
  bind_parameters(*macro.macro, arguments);
  Flow flow = Flow::next;
  return captured(macro.macro->body, flow);
}

void Interpreter::bind_parameters(const Statement& macro, const Arguments& arguments) {
  const auto& [positional, named] = arguments;
  const std::size_t count = macro.parameters.size();
  Names rest{named};
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (i < positional.size())
      set(parameter.name, positional[i]);
    else if (const auto given = rest.take(parameter.name))
      set(parameter.name, *given);
    else if (parameter.value)
      set(parameter.name, evaluate(*parameter.value));
    else
      set(parameter.name,
          Value::undefined(fmt::format("the parameter '{}' of the macro '{}' was not given",
                                       parameter.name, macro.name)));
  }
  if (macro.uses_caller)
    set("caller", rest.take("caller").value_or(Value::undefined("there is no caller")));
  if (!rest.items.empty() && !macro.uses_kwargs)
    refuse("the macro '{}' has no parameter '{}'", macro.name, rest.items[0].first);
  if (positional.size() > count && !macro.uses_varargs)
    refuse("the macro '{}' takes {} arguments, not {}", macro.name, count, positional.size());
  if (macro.uses_kwargs) set("kwargs", Value::mapping(budget_, rest));
  if (macro.uses_varargs)
    set("varargs",
        Value::tuple(budget_, {positional.begin() + std::min(std::ssize(positional),
                                                             static_cast<std::ptrdiff_t>(count)),
                               positional.end()}));
}

}  // namespace focus::jinja
