#include "data/chat/jinja/function.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

// Calls, global functions, tests (`x is even`), methods of lists, mappings and loops.
namespace focus::jinja {

Call::Call(Interpreter& interpreter, const Definition& definition, const Value& object,
           const Arguments& arguments)
    : in(interpreter),
      budget(interpreter.budget),
      self(object),
      names_(definition.names),
      arguments_(arguments) {
  if (definition.parameters == "*") return;
  const std::vector<std::string_view> parameters = split_space(definition.parameters, -1, false);
  values_.resize(parameters.size());
  if (arguments.positional.size() > values_.size())
    refuse("{}() takes at most {} arguments, not {}", name(), values_.size(),
           arguments.positional.size());
  std::ranges::copy(arguments.positional, values_.begin());
  const auto plain = [](std::string_view parameter) {
    return parameter.substr(0, parameter.find('?'));
  };
  for (const auto& [given, value] : arguments.named) {
    const auto found = std::ranges::find(parameters, std::string_view(given), plain);
    if (found == parameters.end()) refuse("{}() has no argument '{}'", name(), given);
    std::optional<Value>& place = values_[found - parameters.begin()];
    if (place) refuse("{}() gets '{}' twice", name(), given);
    place = value;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!values_[i] && !parameters[i].ends_with('?'))
      refuse("{}() needs '{}'", name(), parameters[i]);
}

std::int64_t Call::integer(std::size_t i, std::int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (!at(i).is_integral()) refuse("{}() needs an integer, not {}", name(), type_name(at(i)));
  return at(i).as_integer();
}

const std::string& Call::string(std::size_t i) const {
  if (!at(i).is(Kind::string)) refuse("{}() needs a string, not {}", name(), type_name(at(i)));
  return at(i).as_string();
}

Value call(Interpreter& in, const Definition& definition, const Value& self,
           const Arguments& arguments) {
  return definition.body(Call(in, definition, self, arguments));
}

const Definition* find_in(std::span<const Definition> definitions, std::string_view name) {
  for (const Definition& definition : definitions)
    for (std::string_view rest = definition.names; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      if (word == name) return &definition;
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    }
  return nullptr;
}

namespace {

Value strftime_now(const Call& call) {
  const std::string& format = call.string(0);
  if (format.empty()) return Value::constant("");
  if (format.size() > 1000)
    refuse("strftime_now(): a format of {} bytes is too long", format.size());
  std::array<char, 16384> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), format.c_str(), &call.in.now);
  return call.text({text.data(), size});
}

Value make_range(const Call& call) {
  std::int64_t start = 0, stop = call.integer(0);
  if (call.has(1)) start = std::exchange(stop, call.integer(1));
  const std::int64_t step = call.integer(2, 1);
  if (step == 0) refuse("the step of range() must not be 0");
  // Unsigned, where no distance of two numbers overflows.
  const auto unsigned_of = [](std::int64_t x) { return static_cast<std::uint64_t>(x); };
  const bool up = step > 0, some = up ? start < stop : stop < start;
  const std::uint64_t distance =
      up ? unsigned_of(stop) - unsigned_of(start) : unsigned_of(start) - unsigned_of(stop);
  const std::uint64_t stride = up ? unsigned_of(step) : -unsigned_of(step);
  const std::uint64_t count = some ? (distance - 1) / stride + 1 : 0;
  if (count > unsigned_of(kMostRange)) refuse("range() has more than {} numbers", kMostRange);
  return Value::range({start, stop, step, static_cast<std::int64_t>(count)});
}

/// What dict(...) and namespace(...) take: a mapping, or pairs, and names.
Pairs pairs_of(const Call& call) {
  const auto& [positional, named] = call.arguments();
  Pairs items;
  if (positional.size() > 1) refuse("dict() and namespace() take one mapping");
  if (!positional.empty() && positional[0].is(Kind::mapping)) {
    items = positional[0].as_mapping();
    call.budget.make(items.size() * 2 * sizeof(Value));
  } else if (!positional.empty()) {
    for (const Value& pair : iterate(call.budget, positional[0])) {
      const std::vector<Value> both = iterate(call.budget, pair);
      if (both.size() != 2) refuse("dict() needs pairs, not {} values", both.size());
      insert(call.budget, items, both[0], both[1]);
    }
  }
  for (const auto& [name, value] : named) insert(call.budget, items, call.text(name), value);
  return items;
}

Value make_namespace(const Call& call) {
  call.budget.make(sizeof(Namespace));
  Namespace* const space = &call.in.spaces.emplace_back();
  for (auto& [name, value] : pairs_of(call)) {
    if (!name.is(Kind::string)) refuse("namespace() needs names, not {}", type_name(name));
    set_member(*space, name.as_string(), std::move(value));
  }
  return Value::space(space);
}

constexpr Definition kGlobals[] = {
    {"raise_exception", "message",
     [](const Call& c) -> Value {
       refuse("the template refuses these messages: {}", to_text(c.budget, c.at(0)));
     }},
    {"strftime_now", "format", strftime_now},
    {"range", "start stop? step?", make_range},
    {"dict", "*", [](const Call& c) { return Value::mapping(c.budget, pairs_of(c)); }},
    {"namespace", "*", make_namespace},
};

/// Whether the value is of one of these kinds.
template <Kind... Kinds>
Value is_of(const Call& call) {
  return Value::boolean((call.self.is(Kinds) || ...));
}

template <bool Expected>
Value is_boolean(const Call& call) {
  return Value::boolean(call.self.is(Kind::boolean) && call.self.as_boolean() == Expected);
}

Value divisible(const Call& call, const Value& by, std::int64_t rest) {
  const Value left = arithmetic(call.budget, "%", call.self, by);
  return Value::boolean(equal(call.budget, left, Value::integer(rest)));
}

/// By the operator that is the test's second name.
Value compares(const Call& call) {
  const auto words = split_space(call.names(), -1, false);
  return Value::boolean(
      compared(call.budget, words[words.size() > 1 ? 1 : 0], call.self, call.at(0)));
}

template <const Definition* (*Find)(std::string_view)>
Value is_name_of(const Call& call) {
  return Value::boolean(call.self.is(Kind::string) && Find(call.self.as_string()) != nullptr);
}

constexpr Definition kTests[] = {
    {"defined", "", [](const Call& c) { return Value::boolean(!c.self.is_undefined()); }},
    {"undefined", "", is_of<Kind::undefined>},
    {"none", "", is_of<Kind::none>},
    {"boolean", "", is_of<Kind::boolean>},
    {"true", "", is_boolean<true>},
    {"false", "", is_boolean<false>},
    {"integer", "", is_of<Kind::integer>},
    {"float", "", is_of<Kind::real>},
    {"number", "", is_of<Kind::boolean, Kind::integer, Kind::real>},
    {"string", "", is_of<Kind::string>},
    {"mapping", "", is_of<Kind::mapping>},
    {"iterable", "",
     is_of<Kind::undefined, Kind::string, Kind::list, Kind::tuple, Kind::mapping, Kind::range,
           Kind::keys, Kind::values, Kind::items, Kind::slice, Kind::iterator, Kind::loop>},
    // What has a length and items by index or key.
    {"sequence", "",
     is_of<Kind::undefined, Kind::string, Kind::list, Kind::tuple, Kind::mapping, Kind::range>},
    {"callable", "", is_of<Kind::undefined, Kind::loop, Kind::function>},
    {"escaped", "", [](const Call&) { return Value::boolean(false); }},
    {"upper", "", [](const Call& c) { return Value::boolean(is_upper(c.self_text())); }},
    {"lower", "", [](const Call& c) { return Value::boolean(is_lower(c.self_text())); }},
    {"odd", "", [](const Call& c) { return divisible(c, Value::integer(2), 1); }},
    {"even", "", [](const Call& c) { return divisible(c, Value::integer(2), 0); }},
    {"divisibleby", "num", [](const Call& c) { return divisible(c, c.at(0), 0); }},
    {"eq == equalto", "other", compares},
    {"ne !=", "other", compares},
    {"lt < lessthan", "other", compares},
    {"le <=", "other", compares},
    {"gt > greaterthan", "other", compares},
    {"ge >=", "other", compares},
    {"in", "other", compares},
    {"sameas", "other", [](const Call& c) { return Value::boolean(c.self.same_as(c.at(0))); }},
    {"filter", "", is_name_of<find_filter>},
    {"test", "", is_name_of<find_test>},
};

template <Kind Which>
Value view(const Call& call) {
  return view_of(call.budget, call.self, Which);
}

Value get_item(const Call& call) {
  const Value* const value = find(call.budget, call.self.as_mapping(), call.at(0));
  return value != nullptr ? *value : call.has(1) ? call.at(1) : Value::none();
}

Value count_items(const Call& call) {
  return Value::integer(std::ranges::count_if(call.self.as_items(), [&](const Value& item) {
    return equal(call.budget, item, call.at(0));
  }));
}

Value index_of(const Call& call) {
  const auto& items = call.self.as_items();
  const auto found = std::ranges::find_if(
      items, [&](const Value& item) { return equal(call.budget, item, call.at(0)); });
  if (found == items.end()) refuse("index() found no such item");
  return Value::integer(found - items.begin());
}

Value copy_of(const Call& call) { return call.self; }

// Without a body: methods that change their object, which Jinja's immutable sandbox hides.
constexpr Definition kMappingMethods[] = {{"items", "", view<Kind::items>},
                                          {"keys", "", view<Kind::keys>},
                                          {"values", "", view<Kind::values>},
                                          {"get", "key default?", get_item},
                                          {"copy", "", copy_of},
                                          {"clear pop popitem setdefault update"}};
constexpr Definition kListMethods[] = {{"count", "value", count_items},
                                       {"index", "value", index_of},
                                       {"copy", "", copy_of},
                                       {"append clear extend insert pop remove reverse sort"}};

Value cycle(const Call& call) {
  const std::vector<Value>& values = call.arguments().positional;
  if (values.empty()) refuse("loop.cycle() needs at least one value");
  return values[call.self.as_loop()->index % values.size()];
}

Value changed(const Call& call) {
  auto& last = call.self.as_loop()->last_changed;
  const auto& values = call.arguments().positional;
  const auto same = [&](const Value& a, const Value& b) { return equal(call.budget, a, b); };
  if (last && std::ranges::equal(*last, values, same)) return Value::boolean(false);
  last = values;
  return Value::boolean(true);
}

constexpr Definition kLoopMethods[] = {{"cycle", "*", cycle}, {"changed", "*", changed}};

}  // namespace

const Definition* find_global(std::string_view name) { return find_in(kGlobals, name); }
const Definition* find_test(std::string_view name) { return find_in(kTests, name); }

bool is_known_global(std::string_view name) {
  return name == "self" || name == "lipsum" || name == "cycler" || name == "joiner";
}

const Definition* find_filter(std::string_view name) {
  const Definition* const found = find_in(text_filters(), name);
  return found != nullptr ? found : find_in(other_filters(), name);
}

const Definition& known_filter(std::string_view name) {
  constexpr std::array<std::string_view, 15> kOthers = {
      "e",         "escape", "filesizeformat", "forceescape", "groupby",
      "pprint",    "random", "slice",          "striptags",   "truncate",
      "urlencode", "urlize", "wordcount",      "wordwrap",    "xmlattr"};
  if (const Definition* const found = find_filter(name)) return *found;
  refuse("the filter '{}' is {}", name,
         std::ranges::find(kOthers, name) == kOthers.end() ? "unknown" : "not supported");
}

const Definition& known_test(std::string_view name) {
  if (const Definition* const found = find_test(name)) return *found;
  refuse("the test '{}' is unknown", name);
}

const Definition* find_method(const Value& self, std::string_view name) {
  if (self.is(Kind::string)) return find_in(text_methods(), name);
  if (self.is(Kind::list)) return find_in(kListMethods, name);
  if (self.is(Kind::tuple)) return find_in(std::span(kListMethods).first(2), name);
  if (self.is(Kind::mapping)) return find_in(kMappingMethods, name);
  return self.is(Kind::loop) ? find_in(kLoopMethods, name) : nullptr;
}

Value loop_attribute(const LoopState& loop, std::string_view name) {
  const std::int64_t count = std::ssize(loop.items), index = loop.index;
  const auto near = [&](std::int64_t at) {
    if (at < 0 || at >= count) return Value::undefined("the loop has no such item");
    return loop.items[at];
  };
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "previtem") return near(index - 1);
  if (name == "nextitem") return near(index + 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  return Value::undefined(fmt::format("a loop has no attribute '{}'", name));
}

}  // namespace focus::jinja
