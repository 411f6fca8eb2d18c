#include <charconv>
#include <cmath>

#include "data/chat/jinja/function.h"
#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"
#include "data/chat/jinja/value.h"

namespace focus::jinja {
namespace {

/// Writes values as Python does, counting what it writes.
class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void repr(const Value& value) {
    if (++depth_ > 2 * kMostValueDepth) refuse("a value that contains itself cannot be printed");
    budget_.step();
    switch (value.kind()) {
      case Kind::undefined:
        put("Undefined");
        break;
      case Kind::none:
        put("None");
        break;
      case Kind::boolean:
        put(value.as_boolean() ? "True" : "False");
        break;
      case Kind::integer:
        put(std::to_string(value.as_integer()));
        break;
      case Kind::real:
        put(real_text(value.as_real()));
        break;
      case Kind::string:
        put(jinja::quoted(value.as_string()));
        break;
      case Kind::list:
        items("[", value.as_items(), "]");
        break;
      case Kind::tuple:
        items("(", value.as_items(), value.as_items().size() == 1 ? ",)" : ")");
        break;
      case Kind::mapping:
        pairs(value.as_mapping().items);
        break;
      case Kind::range:
        range(value.as_range());
        break;
      case Kind::view:
        view(value.as_view());
        break;
      case Kind::space:
        space(*value.as_space());
        break;
      default:
        object(value);
    }
    --depth_;
  }

  std::string text;

 private:
  void put(std::string_view part) {
    budget_.make(part.size());
    text += part;
  }

  void items(std::string_view open, const std::vector<Value>& values, std::string_view close) {
    put(open);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) put(", ");
      repr(values[i]);
    }
    put(close);
  }

  void pairs(const std::vector<std::pair<Value, Value>>& values) {
    put("{");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) put(", ");
      repr(values[i].first);
      put(": ");
      repr(values[i].second);
    }
    put("}");
  }

  void range(const Range& value) {
    put(fmt::format("range({}, {}", value.start, value.stop));
    put(value.step == 1 ? ")" : fmt::format(", {})", value.step));
  }

  void view(const View& value) {
    constexpr std::string_view kNames[] = {"dict_keys(", "dict_values(", "dict_items("};
    put(kNames[static_cast<std::size_t>(value.kind)]);
    items("[", iterate(budget_, Value::view(value)), "]");
    put(")");
  }

  void space(const Namespace& value) {
    std::vector<std::pair<Value, Value>> values;
    for (const auto& [key, item] : value.items)
      values.emplace_back(Value::string(budget_, key), item);
    put("<Namespace ");
    pairs(values);
    put(">");
  }

  void object(const Value& value) {
    if (value.is(Kind::loop)) {
      const LoopState& loop = *value.as_loop();
      put(fmt::format("<LoopContext {}/{}>", loop.index + 1, loop.items.size()));
    } else if (value.is(Kind::function) && value.as_function().macro != nullptr) {
      put(fmt::format("<Macro '{}'>", value.as_function().name));
    } else {
      // Python prints an address.
      refuse("a {} cannot be printed{}", type_name(value),
             value.is(Kind::iterator) ? "; '|list' converts it to a list" : "");
    }
  }

  Budget& budget_;
  int depth_ = 0;
};

}  // namespace

std::string to_repr(Budget& budget, const Value& value) {
  Printer printer(budget);
  printer.repr(value);
  return std::move(printer.text);
}

std::string to_text(Budget& budget, const Value& value) {
  if (value.is(Kind::string)) {
    budget.make(value.as_string().size());
    return value.as_string();
  }
  if (value.is_undefined()) return "";
  return to_repr(budget, value);
}

}  // namespace focus::jinja
