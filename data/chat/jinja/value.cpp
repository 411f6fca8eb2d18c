#include "data/chat/jinja/value.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

namespace focus::jinja {
namespace {

constexpr std::size_t kValueBytes = 48;  // what one value in a list counts

int deeper(int depth) {
  if (depth >= kMostValueDepth) refuse("lists nested deeper than {} levels", kMostValueDepth);
  return depth + 1;
}

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return deeper(depth);
}

/// -1, 0 or 1, exactly, also where a double cannot hold the integer; 2 where one is NaN.
int compare_numbers(const Value& a, const Value& b) {
  const auto compare = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; };
  if (a.is_big() && b.is_big() && (a.as_real() < 0) == (b.as_real() < 0)) {
    const std::string &x = a.as_string(), &y = b.as_string();
    const int longer = x.size() == y.size() ? x.compare(y) : compare(x.size(), y.size());
    return a.as_real() < 0 ? compare(0, longer) : compare(longer, 0);
  }
  if (a.is_big() || b.is_big()) return compare(a.as_real(), b.as_real());
  if (a.is_integral() && b.is_integral()) return compare(a.as_integer(), b.as_integer());
  const auto exact = [](const Value& x) {
    return x.is_integral() ? static_cast<long double>(x.as_integer()) : x.as_real();
  };
  return compare(exact(a), exact(b));
}

bool less_items(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  const std::size_t both = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < both; ++i)
    if (!equal(budget, a[i], b[i])) return less(budget, a[i], b[i]);
  return a.size() < b.size();
}

bool is_hashable(const Value& value) {
  if (value.is(Kind::tuple)) return std::ranges::all_of(value.as_items(), is_hashable);
  return !value.is(Kind::list) && !value.is(Kind::mapping) && !value.is_view();
}

/// Writes values as JSON, or without a style as Python's repr(), and counts what it writes.
class Writer {
 public:
  Writer(Budget& budget, const JsonStyle* json) : budget_(budget), json_(json) {
    if (json != nullptr) style_ = *json;
  }

  void write(const Value& value) {
    if (++depth_ > 2 * kMostValueDepth) refuse("a value that contains itself cannot be printed");
    budget_.step();
    const bool json = json_ != nullptr;
    if (value.is(Kind::list) || (value.is(Kind::tuple) && json)) {
      items("[", value.as_items(), "]");
    } else if (value.is(Kind::tuple)) {
      items("(", value.as_items(), value.size() == 1 ? ",)" : ")");
    } else if (value.is(Kind::mapping)) {
      pairs(value.as_mapping());
    } else if (value.is_view() && !json) {
      items(value.is(Kind::keys)     ? "dict_keys(["
            : value.is(Kind::values) ? "dict_values(["
                                     : "dict_items([",
            value.as_items(), "])");
    } else if (value.is(Kind::space) && !json) {
      put("<Namespace ");
      write(mapping_of(budget_, *value.as_space()));
      put(">");
    } else {
      put(scalar(value));
    }
    --depth_;
  }

  std::string text;

 private:
  void put(std::string_view part) {
    budget_.make(part.size());
    text += part;
  }

  std::string scalar(const Value& value) const {
    const bool json = json_ != nullptr;
    if (value.is(Kind::none)) return json ? "null" : "None";
    if (value.is(Kind::boolean) && json) return value.as_boolean() ? "true" : "false";
    if (value.is(Kind::boolean)) return value.as_boolean() ? "True" : "False";
    if (value.is_big()) return value.as_string();
    if (value.is(Kind::integer)) return std::to_string(value.as_integer());
    if (value.is(Kind::string))
      return json ? json_quoted(value.as_string()) : jinja::quoted(value.as_string());
    if (!value.is(Kind::real) && json) refuse("tojson cannot write a {}", type_name(value));
    if (!value.is(Kind::real)) return python_text(value);
    const double real = value.as_real();
    if (!json || std::isfinite(real)) return real_text(real);
    return std::isnan(real) ? "NaN" : real < 0 ? "-Infinity" : "Infinity";
  }

  static std::string python_text(const Value& value) {
    if (value.is_undefined()) return "Undefined";
    if (value.is(Kind::range)) {
      const auto& [start, stop, step, count] = value.as_range();
      return step == 1 ? fmt::format("range({}, {})", start, stop)
                       : fmt::format("range({}, {}, {})", start, stop, step);
    }
    if (value.is(Kind::loop))
      return fmt::format("<LoopContext {}/{}>", value.as_loop()->index + 1,
                         value.as_loop()->items.size());
    if (value.is(Kind::function) && value.as_function().macro != nullptr)
      return fmt::format("<Macro '{}'>", value.as_function().name);
    // Python prints an address.
    refuse("a {} cannot be printed{}", type_name(value),
           value.is(Kind::iterator) ? "; '|list' converts it to a list" : "");
  }

  std::string json_quoted(std::string_view value) const {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    std::string result = "\"";
    each_character(value, [&](std::string_view one, char32_t c) {
      const std::size_t escaped = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : kEscaped.npos;
      if (escaped != kEscaped.npos)
        (result += '\\') += kLetters[escaped];
      else if (c >= 0x10000 && style_.ensure_ascii)  // a surrogate pair
        result += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (c - 0x10000) / 0x400,
                              0xDC00 + (c - 0x10000) % 0x400);
      else if (c < 0x20 || (c >= 0x80 && style_.ensure_ascii))
        result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
      else
        result += one;
    });
    return result += '"';
  }

  void line() {
    if (!style_.indent) return;
    put("\n");
    for (int i = 0; i < level_; ++i) put(*style_.indent);
  }

  template <class Items, class WriteItem>
  void container(std::string_view open, const Items& all, std::string_view close,
                 WriteItem&& write_item) {
    put(open);
    ++level_;
    bool first = true;
    for (const auto& item : all) {
      if (!first) put(style_.between_items);
      first = false;
      line();
      write_item(item);
    }
    --level_;
    if (!first) line();
    put(close);
  }

  void items(std::string_view open, const std::vector<Value>& all, std::string_view close) {
    container(open, all, close, [&](const Value& item) { write(item); });
  }

  void pairs(Pairs all) {
    if (style_.sort_keys)
      std::ranges::stable_sort(
          all, [&](const auto& a, const auto& b) { return less(budget_, a.first, b.first); });
    container("{", all, "}", [&](const auto& item) {
      if (json_ == nullptr)
        write(item.first);
      else if (item.first.is(Kind::string))
        put(json_quoted(item.first.as_string()));
      else
        put(json_quoted(scalar(item.first)));
      put(style_.after_key);
      write(item.second);
    });
  }

  Budget& budget_;
  const JsonStyle* json_;
  JsonStyle style_;
  int depth_ = 0, level_ = 0;  // of values, of indented containers
};

std::string written(Budget& budget, const Value& value, const JsonStyle* json) {
  Writer writer(budget, json);
  writer.write(value);
  return std::move(writer.text);
}

}  // namespace

Value Value::string(Budget& budget, std::string text) {
  budget.make(kValueBytes + text.size());
  return constant(std::move(text));
}

Value Value::big_integer(Budget& budget, std::string digits) {
  Value value = string(budget, std::move(digits));
  value.kind_ = Kind::integer;
  return value;
}

Value Value::sequence(Budget& budget, Kind kind, std::vector<Value> items) {
  budget.make(kValueBytes * (1 + items.size()));
  budget.step(items.size());
  const int depth = depth_of(items);
  return {kind, std::make_shared<const std::vector<Value>>(std::move(items)), depth};
}

Value Value::iterator(Budget& budget, const std::vector<Value>& items) {
  budget.make(kValueBytes * (1 + items.size()));
  return {Kind::iterator, std::make_shared<std::deque<Value>>(items.begin(), items.end()),
          depth_of(items)};
}

Value Value::mapping(Budget& budget, Pairs items) {
  budget.make(kValueBytes * (1 + 2 * items.size()));
  budget.step(items.size());
  int depth = 0;
  for (const auto& [key, value] : items) depth = std::max({depth, key.depth(), value.depth()});
  return {Kind::mapping, std::make_shared<const Pairs>(std::move(items)), deeper(depth)};
}

Value Value::function(Budget& budget, Function function) {
  budget.make(sizeof(Function));
  const int depth = deeper(function.self.depth());
  return {Kind::function, std::make_shared<const Function>(std::move(function)), depth};
}

Value Value::from_json(Budget& budget, const nlohmann::ordered_json& json) {
  if (json.is_null()) return none();
  if (json.is_boolean()) return boolean(json.get<bool>());
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX)
    return big_integer(budget, std::to_string(json.get<std::uint64_t>()));
  if (json.is_binary())  // as parse_ordered_json() writes them
    return big_integer(budget, {json.get_binary().begin(), json.get_binary().end()});
  if (json.is_number_integer()) return integer(json.get<std::int64_t>());
  if (json.is_number_float()) return real(json.get<double>());
  if (json.is_string()) return string(budget, json.get<std::string>());
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(from_json(budget, item));
    return list(budget, std::move(items));
  }
  Pairs items;
  for (const auto& [key, value] : json.items())
    items.emplace_back(string(budget, key), from_json(budget, value));
  return mapping(budget, std::move(items));
}

void Value::require_defined() const {
  if (!is_undefined()) return;
  const auto* message = std::get_if<std::shared_ptr<const std::string>>(&data_);
  refuse("{}", message == nullptr ? "the value is undefined" : **message);
}

bool Value::same_as(const Value& other) const {
  if (is_undefined() || is(Kind::range)) return this == &other;
  return kind_ == other.kind_ && data_ == other.data_;
}

std::size_t Value::size() const {
  if (is(Kind::string)) return as_string().size();
  if (is_sequence() || is_view()) return as_items().size();
  if (is(Kind::mapping)) return as_mapping().size();
  return is(Kind::range) ? static_cast<std::size_t>(as_range().count) : 0;
}

void set_member(Namespace& space, const std::string& name, Value value) {
  if (name.starts_with('_')) refuse("a namespace takes no name that begins with '_': '{}'", name);
  space[name] = std::move(value);
}

Value mapping_of(Budget& budget, const Names& names) {
  Pairs pairs;
  for (const auto& [name, value] : names) pairs.emplace_back(Value::string(budget, name), value);
  return Value::mapping(budget, std::move(pairs));
}

std::string_view type_name(const Value& value) {
  static constexpr std::array kNames = {
      "Undefined", "NoneType", "bool",      "int",       "float",       "str",
      "list",      "tuple",    "dict",      "range",     "dict view",   "dict view",
      "dict view", "slice",    "generator", "Namespace", "LoopContext", "function"};
  return kNames[static_cast<std::size_t>(value.kind())];
}

bool truth(const Value& value) {
  if (value.is_number()) return value.as_real() != 0;
  return value.size() > 0 || value.kind() >= Kind::slice;
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.is_undefined() || a.is(Kind::none)) return true;
  if (a.size() != b.size()) return false;
  if (a.is(Kind::string)) {
    budget.scan(a.size());
    return a.as_string() == b.as_string();
  }
  if (a.is_sequence())
    return std::ranges::equal(a.as_items(), b.as_items(),
                              [&](const Value& x, const Value& y) { return equal(budget, x, y); });
  if (a.is(Kind::mapping))
    return std::ranges::all_of(a.as_mapping(), [&](const auto& pair) {
      const Value* const other = find(budget, b.as_mapping(), pair.first);
      return other != nullptr && equal(budget, pair.second, *other);
    });
  if (a.is(Kind::range))
    return (a.size() == 0 || a.as_range().start == b.as_range().start) &&
           (a.size() < 2 || a.as_range().step == b.as_range().step);
  return a.same_as(b);
}

bool less(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  for (const Value* value : {&a, &b}) value->require_defined();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.kind() == b.kind() && a.is(Kind::string)) {
    budget.scan(std::min(a.as_string().size(), b.as_string().size()));
    return a.as_string() < b.as_string();  // UTF-8 has the order of its code points
  }
  if (a.kind() == b.kind() && a.is_sequence())
    return less_items(budget, a.as_items(), b.as_items());
  refuse("{} and {} cannot be ordered", type_name(a), type_name(b));
}

bool contains(Budget& budget, const Value& container, const Value& item) {
  if (container.is(Kind::string)) {
    if (!item.is(Kind::string))
      refuse("'in' with a string on the right needs a string on the left, not {}", type_name(item));
    budget.scan(container.size());
    return find_bytes(container.as_string(), item.as_string()) != npos;
  }
  if (container.is(Kind::mapping)) {
    if (!is_hashable(item)) refuse("{} cannot be a mapping key", type_name(item));
    return find(budget, container.as_mapping(), item) != nullptr;
  }
  if (container.is_sequence())
    return std::ranges::any_of(container.as_items(), [&](const Value& other) {
      return other.same_as(item) || equal(budget, other, item);
    });
  return std::ranges::any_of(iterate(budget, container),
                             [&](const Value& other) { return equal(budget, other, item); });
}

std::vector<Value> iterate(Budget& budget, const Value& value) {
  std::vector<Value> items;
  if (value.is_sequence() || value.is_view()) {
    items = value.as_items();
  } else if (value.is(Kind::string)) {
    each_character(value.as_string(), [&](std::string_view one, char32_t) {
      items.push_back(Value::string(budget, std::string(one)));
    });
  } else if (value.is(Kind::mapping)) {
    for (const auto& [key, of_key] : value.as_mapping()) items.push_back(key);
  } else if (value.is(Kind::range)) {
    budget.make(value.size() * sizeof(Value));
    for (std::int64_t i = 0; i < value.as_range().count; ++i)
      items.push_back(Value::integer(value.as_range().at(i)));
  } else if (value.is(Kind::iterator)) {
    std::deque<Value> rest = std::exchange(value.as_iterator(), {});
    items.assign(rest.begin(), rest.end());
  } else if (!value.is_undefined()) {
    refuse("{} is not iterable", type_name(value));
  }
  budget.step(items.size());
  budget.make(items.size() * sizeof(Value));
  return items;
}

Value view_of(Budget& budget, const Value& mapping, Kind kind) {
  std::vector<Value> items;
  for (const auto& [key, value] : mapping.as_mapping())
    items.push_back(kind == Kind::keys     ? key
                    : kind == Kind::values ? value
                                           : Value::tuple(budget, {key, value}));
  return Value::sequence(budget, kind, std::move(items));
}

std::int64_t length(Budget& budget, const Value& value) {
  if (value.is(Kind::string)) {
    budget.scan(value.size());
    return character_count(value.as_string());
  }
  if (value.is_number() || value.is(Kind::none) || value.kind() >= Kind::slice)
    refuse("{} has no length", type_name(value));
  return static_cast<std::int64_t>(value.size());
}

const Value* find(Budget& budget, const Pairs& mapping, const Value& key) {
  for (const auto& [own, value] : mapping)
    if (equal(budget, own, key)) return &value;
  return nullptr;
}

void insert(Budget& budget, Pairs& items, Value key, Value value) {
  if (!is_hashable(key)) refuse("{} cannot be a mapping key", type_name(key));
  for (auto& [own, old] : items)
    if (equal(budget, own, key)) {
      old = std::move(value);
      return;
    }
  items.emplace_back(std::move(key), std::move(value));
}

// Values as text: Python's str() and repr(), and json.dumps().

std::string to_repr(Budget& budget, const Value& value) { return written(budget, value, nullptr); }

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  return written(budget, value, &style);
}

std::string to_text(Budget& budget, const Value& value) {
  if (value.is_undefined()) return "";
  if (!value.is(Kind::string)) return to_repr(budget, value);
  budget.make(value.as_string().size());
  return value.as_string();
}

}  // namespace focus::jinja
