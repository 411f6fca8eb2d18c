#include <algorithm>
#include <array>
#include <map>

#include "data/chat/jinja/interpreter.h"

// The functions that a template finds without anybody's giving them.
namespace focus::jinja {
namespace {

Value raise_exception(Interpreter& in, const Value&, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  refuse("the template refuses these messages: {}", to_text(in.budget(), bound.at(0)));
}

Value strftime_now(Interpreter& in, const Value&, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const std::string& format = bound.string(0);
  if (format.empty()) return Value::constant("");
  if (format.size() > 1000)
    refuse("strftime_now(): a format of {} bytes is too long", format.size());
  std::array<char, 16384> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), format.c_str(), &in.now());
  return Value::string(in.budget(), std::string(text.data(), size));
}

Value make_range(Interpreter&, const Value&, const Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  std::int64_t start = 0, stop = bound.integer(0, 0);
  if (bound.has(1)) {
    start = stop;
    stop = bound.integer(1, 0);
  }
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) refuse("the step of range() must not be 0");
  // Unsigned, where no distance of two numbers overflows.
  const auto low = static_cast<std::uint64_t>(step > 0 ? start : stop),
             high = static_cast<std::uint64_t>(step > 0 ? stop : start),
             stride =
                 step > 0 ? static_cast<std::uint64_t>(step) : -static_cast<std::uint64_t>(step);
  const bool some = step > 0 ? start < stop : stop < start;
  const std::uint64_t count = some ? (high - low - 1) / stride + 1 : 0;
  if (count > static_cast<std::uint64_t>(kMostRange))
    refuse("range() has more than {} numbers", kMostRange);
  return Value::range({start, stop, step, static_cast<std::int64_t>(count)});
}

/// What dict(...) and namespace(...) take: a mapping, or pairs, and names.
std::vector<std::pair<Value, Value>> pairs_of(Interpreter& in, const Arguments& arguments) {
  Budget& budget = in.budget();
  std::vector<std::pair<Value, Value>> items;
  if (arguments.positional.size() > 1) refuse("dict() and namespace() take one mapping");
  for (const Value& given : arguments.positional) {
    if (given.is(Kind::mapping)) {
      items = given.as_mapping().items;
      budget.make(items.size() * 2 * sizeof(Value));
      continue;
    }
    for (const Value& pair : iterate(budget, given)) {
      const std::vector<Value> both = iterate(budget, pair);
      if (both.size() != 2) refuse("dict() needs pairs, not {} values", both.size());
      insert(budget, items, both[0], both[1]);
    }
  }
  for (const auto& [name, value] : arguments.named)
    insert(budget, items, Value::string(budget, name), value);
  return items;
}

Value make_dict(Interpreter& in, const Value&, const Arguments& arguments) {
  return Value::mapping(in.budget(), pairs_of(in, arguments));
}

Value make_namespace(Interpreter& in, const Value&, const Arguments& arguments) {
  Namespace* const space = in.make_space();
  for (auto& [name, value] : pairs_of(in, arguments)) {
    if (!name.is(Kind::string)) refuse("namespace() needs names, not {}", type_name(name));
    space->set(name.as_string(), std::move(value));
  }
  return Value::space(space);
}

const std::map<std::string_view, Function::Body> kGlobals = {{"raise_exception", raise_exception},
                                                             {"strftime_now", strftime_now},
                                                             {"range", make_range},
                                                             {"dict", make_dict},
                                                             {"namespace", make_namespace}};

}  // namespace

Function::Body find_global(std::string_view name) {
  const auto found = kGlobals.find(name);
  return found == kGlobals.end() ? nullptr : found->second;
}

bool is_known_global(std::string_view name) {
  return name == "self" || name == "lipsum" || name == "cycler" || name == "joiner";
}

}  // namespace focus::jinja
