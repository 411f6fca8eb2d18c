#include "data/settings/config_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <system_error>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

using Kind = ConfigNode::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Numbers are written as in JSON, so that 010, 0x10, 1_000, .nan and +1 have no meaning at all.
bool is_number(std::string_view text, bool integer_only) {
  static const std::regex kInteger("-?(0|[1-9][0-9]*)");
  static const std::regex kReal(R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?)");
  constexpr std::size_t kMost = 1000;  // the library recurses for each character
  return text.size() <= kMost &&
         std::regex_match(text.begin(), text.end(), integer_only ? kInteger : kReal);
}

std::string_view number_hint(std::string_view text, bool integer_only) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.starts_with("0x") || text.starts_with("0X") || text.starts_with("0o"))
    return "only decimal numbers are supported";
  if (text.size() > 1 && text[0] == '0' && is_digit(text[1]))
    return "leading zeros are not allowed";
  if (integer_only && is_number(text, false))
    return "write it without a decimal point or an exponent";
  return "";
}

/// Plain words need no quotes; all else is quoted, so that no text can turn into something else.
bool is_plain_word(const std::string& text) {
  static constexpr std::string_view kOthers = "_-./";
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || !(is_letter(text[0]) || text[0] == '/' || text[0] == '_')) return false;
  if (!std::ranges::all_of(text, [&](char c) {
        return is_letter(c) || is_digit(c) || kOthers.find(c) != std::string_view::npos;
      }))
    return false;
  static constexpr std::array<std::string_view, 10> kReserved = {
      "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan"};
  std::string lower = text;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::ranges::find(kReserved, lower) == kReserved.end();
}

}  // namespace

void refuse_value(std::string_view wanted, const ConfigNode& node, std::string_view hint) {
  static constexpr std::array kKinds = {"null", "", "a list", "a group of keys",
                                        "an unknown value"};
  std::string came = kKinds[static_cast<std::size_t>(node.kind)];
  if (node.kind == Kind::kScalar)
    came = node.quoted ? '"' + shown(node.text) + '"' : shown(node.text);
  if (came.empty()) came = "nothing";
  throw std::invalid_argument(
      fmt::format("expected {}, got {}{}{}", wanted, came, hint.empty() ? "" : ": ", hint));
}

void read_value(const ConfigNode& node, const Range&, bool& value) {
  const bool is_word = node.kind == Kind::kScalar && !node.quoted;
  if (!is_word || (node.text != "true" && node.text != "false"))
    refuse_value("true or false", node);
  value = node.text == "true";
}
void read_value(const ConfigNode& node, const Range&, std::string& value) {
  if (node.kind == Kind::kNull) refuse_value("text", node, "quote it if the word null is meant");
  if (node.kind != Kind::kScalar) refuse_value("text", node);
  value = node.text;
}

std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(const std::string& value) {
  // A JSON string is also a double-quoted YAML string.
  return is_plain_word(value) ? value : json_text(nlohmann::json(value));
}

template <ConfigNumber T>
void read_value(const ConfigNode& node, const Range& range, T& value) {
  constexpr bool kInteger = std::is_integral_v<T>;
  const std::string limits = range_text(range);
  const std::string wanted = (kInteger ? "an integer" : "a number such as 0.1 or 1e-4") +
                             (limits.empty() ? "" : " in the range " + limits);
  if (node.kind != Kind::kScalar) refuse_value(wanted, node);
  if (node.quoted) refuse_value(wanted, node, "quotes make it text");
  if (!is_number(node.text, kInteger)) refuse_value(wanted, node, number_hint(node.text, kInteger));
  if (std::is_unsigned_v<T> && node.text.starts_with('-'))
    refuse_value(wanted, node, "it may not be negative");
  T number{};
  const char* end = node.text.data() + node.text.size();
  const auto result = std::from_chars(node.text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end)
    refuse_value(
        wanted, node,
        fmt::format("it does not fit into {} bits", std::numeric_limits<T>::digits > 32 ? 64 : 32));
  const auto as_double = static_cast<double>(number);
  if (as_double < range.min || as_double > range.max) refuse_value(wanted, node);
  value = number;
}

template <ConfigNumber T>
std::string value_text(T value) {
  if constexpr (std::is_floating_point_v<T>)
    check(std::isfinite(value), "config: {} cannot be written, numbers must be finite", value);
  return fmt::format("{}", value);
}

template void read_value(const ConfigNode&, const Range&, int&);
template void read_value(const ConfigNode&, const Range&, std::int64_t&);
template void read_value(const ConfigNode&, const Range&, std::uint64_t&);
template void read_value(const ConfigNode&, const Range&, float&);
template void read_value(const ConfigNode&, const Range&, double&);
template std::string value_text(int);
template std::string value_text(std::int64_t);
template std::string value_text(std::uint64_t);
template std::string value_text(float);
template std::string value_text(double);

std::size_t read_choice(const ConfigNode& node, std::span<const std::string_view> names) {
  const std::string wanted = fmt::format("one of {}", fmt::join(names, ", "));
  const auto found = std::ranges::find(names, node.text);
  if (node.kind != Kind::kScalar || found == names.end()) refuse_value(wanted, node);
  return static_cast<std::size_t>(found - names.begin());
}

std::string choices_text(std::span<const std::string_view> names) {
  return fmt::format("{}", fmt::join(names, "|"));
}

ConfigNode split_override(const ConfigNode& node) {
  ConfigNode list{.kind = Kind::kList, .entries = {}};
  std::string_view rest = node.text;
  while (!node.text.empty()) {
    const std::size_t comma = rest.find(',');
    std::string_view word = rest.substr(0, comma);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    list.items.push_back({.kind = Kind::kScalar, .text = std::string(word), .entries = {}});
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return list;
}

std::string range_text(const Range& range) {
  const bool has_min = std::isfinite(range.min), has_max = std::isfinite(range.max);
  if (has_min && has_max) return fmt::format("{}..{}", range.min, range.max);
  if (has_min) return fmt::format(">= {}", range.min);
  if (has_max) return fmt::format("<= {}", range.max);
  return "";
}

}  // namespace focus
