#include "data/chat/jinja/json_text.h"

#include <algorithm>
#include <cmath>

#include "data/chat/jinja/python_text.h"

namespace focus::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  void write(const Value& value) {
    budget_.step();
    switch (value.kind()) {
      case Kind::string:
        text_value(value.as_string());
        break;
      case Kind::list:
      case Kind::tuple:
        items(value.as_items());
        break;
      case Kind::mapping:
        pairs(value.as_mapping().items);
        break;
      default:
        put(plain(value));
    }
  }

  std::string text;

 private:
  void put(std::string_view part) {
    budget_.make(part.size());
    text += part;
  }

  static std::string plain(const Value& value) {
    switch (value.kind()) {
      case Kind::none:
        return "null";
      case Kind::boolean:
        return value.as_boolean() ? "true" : "false";
      case Kind::integer:
        return std::to_string(value.as_integer());
      case Kind::real:
        if (std::isnan(value.as_real())) return "NaN";
        if (std::isinf(value.as_real())) return value.as_real() < 0 ? "-Infinity" : "Infinity";
        return real_text(value.as_real());
      default:
        refuse("tojson cannot write a {}", type_name(value));
    }
  }

  void text_value(std::string_view value) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    std::string result = "\"";
    for (std::size_t i = 0; i < value.size();) {
      const std::size_t size = character_size(value, i);
      const char32_t c = character_at(value, i);
      const std::size_t escaped = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : kEscaped.npos;
      if (escaped != kEscaped.npos)
        (result += '\\') += kLetters[escaped];
      else if (c < 0x20 || (c >= 0x80 && style_.ensure_ascii))
        unicode(result, c);
      else
        result += value.substr(i, size);
      i += size;
    }
    put(result += '"');
  }

  static void unicode(std::string& result, char32_t c) {
    if (c >= 0x10000) {  // as a surrogate pair
      result +=
          fmt::format("\\u{:04x}", static_cast<std::uint32_t>(0xD800 + ((c - 0x10000) >> 10)));
      c = 0xDC00 + ((c - 0x10000) & 0x3FF);
    }
    result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
  }

  void line() {
    if (!style_.indent) return;
    put("\n");
    for (int i = 0; i < depth_; ++i) put(*style_.indent);
  }

  template <class Items, class WriteItem>
  void container(std::string_view brackets, const Items& all, WriteItem&& write_item) {
    put(brackets.substr(0, 1));
    ++depth_;
    bool first = true;
    for (const auto& item : all) {
      if (!first) put(style_.between_items);
      first = false;
      line();
      write_item(item);
    }
    --depth_;
    if (!first) line();
    put(brackets.substr(1));
  }

  void items(const std::vector<Value>& all) {
    container("[]", all, [&](const Value& item) { write(item); });
  }

  void pairs(std::vector<std::pair<Value, Value>> all) {
    if (style_.sort_keys)
      std::ranges::stable_sort(
          all, [&](const auto& a, const auto& b) { return less(budget_, a.first, b.first); });
    container("{}", all, [&](const auto& item) {
      text_value(item.first.is(Kind::string) ? item.first.as_string() : plain(item.first));
      put(style_.after_key);
      write(item.second);
    });
  }

  Budget& budget_;
  const JsonStyle& style_;
  int depth_ = 0;
};

}  // namespace

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  writer.write(value);
  return std::move(writer.text);
}

}  // namespace focus::jinja
