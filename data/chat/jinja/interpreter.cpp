#include "data/chat/jinja/interpreter.h"

#include <algorithm>

#include "autograd/base/check.h"
#include "data/chat/jinja/python_text.h"
#include "data/chat/jinja/template.h"
#include "data/files/json_reader.h"

namespace focus::jinja {

Arguments Parts::values(Interpreter& in) const {
  Arguments values;
  for (const Expression& part : all)
    if (values.positional.size() + names.size() < all.size())
      values.positional.push_back(part(in));
    else
      values.named.emplace_back(names[values.named.size()], part(in));
  return values;
}

Value Expression::operator()(Interpreter& in) const {
  const Nesting level = in.deeper();
  in.budget.step();
  const int before = std::exchange(in.line, line);
  Value value = give(in, *parts);
  in.line = before;
  return value;
}

Flow Interpreter::run(const Block& block) {
  const Nesting level = deeper();
  for (const Statement& statement : block.statements) {
    budget.step();
    line = statement.line;
    if (const Flow flow = statement.run(*this); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Value Interpreter::captured(const Block& block, Flow& flow) {
  std::string text;
  std::swap(output, text);
  ++captures_;
  flow = run(block);
  --captures_;
  std::swap(output, text);
  return Value::string(budget, std::move(text));
}

void Interpreter::mark_generated(std::size_t begin) {
  if (output.size() == begin) return;
  generated_captured = generated_captured || captures_ > 0;
  if (captures_ == 0) generated.emplace_back(begin, output.size());
  if (marks) output.insert(begin, kMarks[0]).append(kMarks[1]);
}

void Interpreter::put(const Value& value) {
  const std::string text = to_text(budget, value);
  if (output.size() + text.size() > budget.limits().output)
    refuse("the template writes more than {} bytes", budget.limits().output);
  output += text;
}

const Value* Interpreter::lookup(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    if (const auto found = scope->names.find(name); found != scope->names.end())
      return &found->second;
  return nullptr;
}

Value Interpreter::name(const std::string& name) {
  if (const Value* const value = lookup(name)) return *value;
  for (const auto& [key, value] : variables_.as_mapping())
    if (key.as_string() == name) return value;
  if (const Definition* const global = find_global(name))
    return Value::function(budget, {.name = name, .definition = global});
  if (is_known_global(name)) refuse("the global function '{}' is not supported", name);
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

void Interpreter::set_member_of(const std::string& space, const std::string& member,
                                const Value& value) {
  const Value* const found = lookup(space);
  if (found == nullptr || !found->is(Kind::space))
    refuse("'{}.{}' is assigned to, but '{}' is not a namespace", space, member, space);
  budget.make(sizeof(Value));
  set_member(*found->as_space(), member, value);
}

Value Interpreter::attribute(const Value& object, const Value& name) {
  const std::string& text = name.as_string();
  object.require_defined();
  if (const Definition* const method = find_method(object, text)) {
    if (method->body == nullptr)
      return Value::undefined(
          fmt::format("'{}' of a {} is hidden: it would change it", text, type_name(object)));
    return Value::function(budget, {.name = text, .definition = method, .self = object});
  }
  if (object.is(Kind::loop)) return loop_attribute(*object.as_loop(), text);
  if (object.is(Kind::space))
    if (const auto found = object.as_space()->find(text); found != object.as_space()->end())
      return found->second;
  if (object.is(Kind::mapping))
    if (const Value* const value = find(budget, object.as_mapping(), name)) return *value;
  if (object.is(Kind::function) && object.as_function().macro != nullptr && text == "name")
    return Value::string(budget, object.as_function().name);
  return Value::undefined(fmt::format("a {} has no attribute '{}'", type_name(object), text));
}

Value Interpreter::item(const Value& object, const Value& key) {
  object.require_defined();
  if (key.is(Kind::slice)) return sliced(budget, object, key.as_items());
  if (object.is(Kind::mapping)) {
    if (const Value* const value = find(budget, object.as_mapping(), key)) return *value;
  } else if (key.is_integral() &&
             (object.is_sequence() || object.is(Kind::range) || object.is(Kind::string))) {
    const std::int64_t count = length(budget, object);
    const std::int64_t index = key.as_integer() < 0 ? key.as_integer() + count : key.as_integer();
    if (index >= 0 && index < count) {
      if (object.is_sequence()) return object.as_items()[index];
      if (object.is(Kind::range)) return Value::integer(object.as_range().at(index));
      const std::string& text = object.as_string();
      const std::size_t begin = byte_of(text, index);
      return Value::string(budget, text.substr(begin, character_size(text, begin)));
    }
  }
  if (key.is(Kind::string) &&
      (!object.is(Kind::mapping) || find_method(object, key.as_string()) != nullptr))
    return attribute(object, key);
  return Value::undefined(fmt::format("a {} has no item {}", type_name(object),
                                      key.is(Kind::string) || key.is_integral()
                                          ? to_repr(budget, key)
                                          : std::string(type_name(key))));
}

Value Interpreter::call(const Value& function, const Arguments& arguments) {
  function.require_defined();
  if (!function.is(Kind::function)) refuse("a {} cannot be called", type_name(function));
  const Function& body = function.as_function();
  if (body.macro != nullptr) return call_macro(body, arguments);
  return jinja::call(*this, *body.definition, body.self, arguments);
}

Value Interpreter::macro(const Macro& macro) {
  return Value::function(budget, {.name = macro.name, .macro = &macro, .scope = scope_});
}

Value Interpreter::call_macro(const Function& function, const Arguments& arguments) {
  std::shared_ptr<Scope> scope = function.scope.lock();
  if (scope == nullptr)
    refuse("the macro '{}' was defined in a block that has ended", function.name);
  if (depth_ + 10 > kMostEvaluationDepth)
    refuse("the template calls itself deeper than {} levels", kMostEvaluationDepth);
  const Open open(*this, std::move(scope));
  bind_parameters(*function.macro, arguments);
  Flow flow = Flow::next;
  return captured(function.macro->body, flow);
}

void Interpreter::bind_parameters(const Macro& macro, const Arguments& arguments) {
  const auto& [positional, named] = arguments;
  const std::size_t count = macro.parameters.size(), taken = std::min(count, positional.size());
  Names rest = named;
  const auto take = [&](const std::string& name, Value otherwise) {
    const auto found = rest.find(name);
    if (found == rest.end()) return otherwise;
    otherwise = found->second;
    rest.erase(found);
    return otherwise;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [name, otherwise] = macro.parameters[i];
    if (i < taken)
      set(name, positional[i]);
    else if (rest.count(name) > 0 || !otherwise.give)
      set(name,
          take(name, Value::undefined(fmt::format(
                         "the parameter '{}' of the macro '{}' was not given", name, macro.name))));
    else
      set(name, otherwise(*this));
  }
  const auto reads = [&](const char* name) { return macro.reads.contains(name); };
  if (reads("caller")) set("caller", take("caller", Value::undefined("there is no caller")));
  if (!rest.empty() && !reads("kwargs"))
    refuse("the macro '{}' has no parameter '{}'", macro.name, rest.begin()->first);
  if (positional.size() > count && !reads("varargs"))
    refuse("the macro '{}' takes {} arguments, not {}", macro.name, count, positional.size());
  if (reads("kwargs")) set("kwargs", mapping_of(budget, rest));
  if (reads("varargs"))
    set("varargs", Value::tuple(budget, {positional.begin() + static_cast<std::ptrdiff_t>(taken),
                                         positional.end()}));
}

namespace {

std::tm present() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  localtime_r(&seconds, &now);
  return now;
}

/// The parts between marks in a text, by their places in it without the marks, which go.
TextRanges take_marks(std::string& text) {
  TextRanges ranges;
  std::string plain;
  std::vector<std::size_t> open;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const bool begins = rest.starts_with(Interpreter::kMarks[0]);
    const bool ends = rest.starts_with(Interpreter::kMarks[1]) && !open.empty();
    if (begins) open.push_back(plain.size());
    if (ends && plain.size() > open.back()) ranges.emplace_back(open.back(), plain.size());
    if (ends) open.pop_back();
    if (!begins && !ends) plain += text[at];
    at += begins || ends ? Interpreter::kMarks[0].size() : 1;
  }
  text = std::move(plain);
  return ranges;
}

}  // namespace

Template::Template(const std::string& source, std::string where, const Limits& limits)
    : where_(std::move(where)), limits_(limits) {
  if (source.size() > limits.source)
    fail("{}: the template has {} bytes; at most {} are read", where_, source.size(),
         limits.source);
  int line = 1;
  try {
    block_ = std::make_shared<const Block>(parse_template(source, line));
  } catch (const TemplateError& error) {
    fail("{}: line {}: {}", where_, line, shown_whole(error.what()));
  }
}

std::string Template::render(const nlohmann::ordered_json& variables, std::optional<std::tm> now,
                             TextRanges* generated) const {
  check(variables.is_object() || variables.is_null(), "{}: its variables are a {}, not an object",
        where_, variables.type_name());
  const nlohmann::ordered_json none = nlohmann::ordered_json::object();
  std::optional<Interpreter> interpreter;
  try {
    interpreter.emplace(limits_, variables.is_null() ? none : variables, now ? *now : present());
    interpreter->run(*block_);
    std::string text = std::move(interpreter->output);
    if (generated != nullptr) *generated = std::move(interpreter->generated);
    if (generated == nullptr || !interpreter->generated_captured) return text;
    // Once more, with marks: they count where they change nothing else.
    interpreter.emplace(limits_, variables.is_null() ? none : variables, now ? *now : present());
    interpreter->marks = true;
    interpreter->run(*block_);
    std::string marked = std::move(interpreter->output);
    TextRanges ranges = take_marks(marked);
    if (marked == text) *generated = std::move(ranges);
    return text;
  } catch (const TemplateError& error) {
    fail("{}: line {}: {}", where_, interpreter ? interpreter->line : 1, shown_whole(error.what()));
  }
}

}  // namespace focus::jinja
