#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

/// How single values are written in a config: one read_value, value_text and type_text per type.
namespace focus {

/// Inclusive limits of a number, or of every number in a list.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

/// "1..64", ">= 1", "<= 64" or nothing.
std::string range_text(const Range& range);

/// A value as it was written, before its type is known.
struct ConfigNode {
  enum class Kind { kNull, kScalar, kList, kMap, kRefused };  // kRefused: already complained about
  struct Entry;

  Kind kind = Kind::kNull;
  std::string text = {};       // of a scalar
  bool quoted = false;         // a scalar in quotes: text, never a number
  bool from_override = false;  // a bare word of the command line: a,b is a list there
  int line = 0;                // in the file, from 1
  std::vector<ConfigNode> items = {};
  std::vector<Entry> entries;
};
struct ConfigNode::Entry {
  std::string key;
  int line = 0;
  ConfigNode value;
};

/// Something wrong in a config's text, at a line that counts from 1 (0: no particular line).
struct ConfigProblem {
  int line = 0;
  std::string text;
};

/// Parses strict YAML: one document, no anchors, aliases, merge keys or tags, no key twice in a
/// group, at most 16 levels, valid UTF-8 without control characters. What breaks a rule is appended
/// to `problems`; the tree returned holds what could be read. An empty text is an empty map.
ConfigNode parse_config_yaml(const std::string& text, std::vector<ConfigProblem>& problems);

/// Throws std::invalid_argument "expected ..., got ...", also the form of every read_value below.
[[noreturn]] void refuse_value(std::string_view wanted, const ConfigNode& node,
                               std::string_view hint = "");

template <class T>
concept ConfigNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

void read_value(const ConfigNode& node, const Range& range, bool& value);
void read_value(const ConfigNode& node, const Range& range, std::string& value);
/// Instantiated for int, std::int64_t, std::uint64_t, float and double.
template <ConfigNumber T>
void read_value(const ConfigNode& node, const Range& range, T& value);

/// The value as YAML that read_value reads back to an equal value.
std::string value_text(bool value);
std::string value_text(const std::string& value);
template <ConfigNumber T>
std::string value_text(T value);

/// For help and errors: "int", "number", "text", "true|false". The argument only carries the type.
inline std::string type_text(const bool&) { return "true|false"; }
inline std::string type_text(const std::string&) { return "text"; }
template <ConfigNumber T>
std::string type_text(const T&) {
  return !std::is_integral_v<T> ? "number" : std::is_unsigned_v<T> ? "unsigned int" : "int";
}

/// The position of the node's text among the names.
std::size_t read_choice(const ConfigNode& node, std::span<const std::string_view> names);
std::string choices_text(std::span<const std::string_view> names);
/// A list of the command line, "a, b" or nothing, as a list node.
ConfigNode split_override(const ConfigNode& node);

/// An enum lists its names in the order of its values, which count from 0:
///   constexpr auto enum_names(Gate) { return enum_list("logit", "affinity"); }
template <class... Names>
constexpr std::array<std::string_view, sizeof...(Names)> enum_list(const Names&... names) {
  return {names...};
}
template <class E>
concept ConfigEnum = std::is_enum_v<E> && requires(E e) {
  enum_names(e);
};

template <ConfigEnum E>
void read_value(const ConfigNode& node, const Range&, E& value) {
  constexpr auto names = enum_names(E{});
  value = static_cast<E>(read_choice(node, names));
}
template <ConfigEnum E>
std::string value_text(E value) {
  constexpr auto names = enum_names(E{});
  return std::string(names.at(static_cast<std::size_t>(value)));
}
template <ConfigEnum E>
std::string type_text(const E&) {
  constexpr auto names = enum_names(E{});
  return choices_text(names);
}

template <class T>
void read_value(const ConfigNode& node, const Range& range, std::vector<T>& value) {
  if (node.kind == ConfigNode::Kind::kNull) return value.clear();
  const bool is_word = node.kind == ConfigNode::Kind::kScalar && node.from_override;
  const ConfigNode list = is_word ? split_override(node) : node;
  if (list.kind != ConfigNode::Kind::kList)
    refuse_value("a list such as [a, b] of " + type_text(T{}), node);
  std::vector<T> items;
  for (const ConfigNode& item : list.items) {
    T element{};
    read_value(item, range, element);
    items.push_back(std::move(element));
  }
  value = std::move(items);
}
template <class T>
std::string value_text(const std::vector<T>& value) {
  std::string text;
  for (const T& item : value) text += (text.empty() ? "" : ", ") + value_text(item);
  return "[" + text + "]";
}
template <class T>
std::string type_text(const std::vector<T>&) {
  return "list of " + type_text(T{});
}

template <class T>
void read_value(const ConfigNode& node, const Range& range, std::optional<T>& value) {
  if (node.kind == ConfigNode::Kind::kNull) {
    value.reset();
  } else {
    T inner{};
    read_value(node, range, inner);
    value = std::move(inner);
  }
}
template <class T>
std::string value_text(const std::optional<T>& value) {
  return value ? value_text(*value) : "null";
}
template <class T>
std::string type_text(const std::optional<T>&) {
  return type_text(T{}) + " or null";
}

}  // namespace focus
