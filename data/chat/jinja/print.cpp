#include <algorithm>
#include <array>
#include <cmath>

#include "data/chat/jinja/function.h"
#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/python_text.h"

// Values as text: Python's str() and repr(), and json.dumps().
namespace focus::jinja {
namespace {

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
    switch (value.kind()) {
      case Kind::none:
        return json ? "null" : "None";
      case Kind::boolean:
        if (json) return value.as_boolean() ? "true" : "false";
        return value.as_boolean() ? "True" : "False";
      case Kind::integer:
        return std::to_string(value.as_integer());
      case Kind::real:
        if (json && std::isnan(value.as_real())) return "NaN";
        if (json && std::isinf(value.as_real()))
          return value.as_real() < 0 ? "-Infinity" : "Infinity";
        return real_text(value.as_real());
      case Kind::string:
        return json ? json_quoted(value.as_string()) : jinja::quoted(value.as_string());
      default:
        if (json) refuse("tojson cannot write a {}", type_name(value));
        return python_text(value);
    }
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
    for (std::size_t i = 0; i < value.size();) {
      const std::size_t size = character_size(value, i);
      const char32_t c = character_at(value, i);
      const std::size_t escaped = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : kEscaped.npos;
      if (escaped != kEscaped.npos)
        (result += '\\') += kLetters[escaped];
      else if (c >= 0x10000 && style_.ensure_ascii)  // a surrogate pair
        result += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (c - 0x10000) / 0x400,
                              0xDC00 + (c - 0x10000) % 0x400);
      else if (c < 0x20 || (c >= 0x80 && style_.ensure_ascii))
        result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
      else
        result += value.substr(i, size);
      i += size;
    }
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
