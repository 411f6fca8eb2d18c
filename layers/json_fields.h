#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/tensor.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"

namespace focus {

/// Typed reading of a config.json's fields with errors that name file and key.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool has(const char* key) const {
    const auto it = object_.find(key);
    return it != object_.end() && !it->is_null();
  }
  /// Present, if only as null.
  bool mentions(const char* key) const { return object_.contains(key); }
  std::vector<std::string> keys() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object_.items()) keys.push_back(key);
    return keys;
  }
  Index integer(const char* key) const {
    // Unsigned only: nlohmann would turn -1 into 2^64 - 1, and accept 1e3.
    return require(key, "a non-negative integer", [](const nlohmann::json& x) {
      return x.is_number_unsigned() && x.get<std::uint64_t>() <= 1ULL << 40;
    });
  }
  Index integer(const char* key, Index otherwise) const {
    return has(key) ? integer(key) : otherwise;
  }
  std::optional<Index> optional_integer(const char* key) const {
    return has(key) ? std::optional(integer(key)) : std::nullopt;
  }
  /// A number, a list of them, or null for none.
  std::vector<Index> integers(const char* key) const {
    if (!has(key)) return {};
    if (!object_.at(key).is_array()) return {integer(key)};
    std::vector<Index> numbers;
    for (const nlohmann::json& item : object_.at(key)) {
      const nlohmann::json one = {{key, item}};
      numbers.push_back(JsonFields(one, where_).integer(key));
    }
    return numbers;
  }
  /// Null where the file has null, the default where the key is absent.
  std::optional<Index> nullable_integer(const char* key, std::optional<Index> otherwise) const {
    return mentions(key) ? optional_integer(key) : otherwise;
  }
  double number(const char* key) const { return require(key, "a number", is_number); }
  double number(const char* key, double otherwise) const {
    return has(key) ? number(key) : otherwise;
  }
  std::vector<double> numbers(const char* key) const {
    return require(key, "a list of numbers", [](const nlohmann::json& x) {
      return x.is_array() && std::ranges::all_of(x, is_number);
    });
  }
  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    return require(key, "true or false", [](const nlohmann::json& x) { return x.is_boolean(); });
  }
  /// Short: messages repeat all texts.
  std::string text(const char* key) const {
    require(key, "a string", [](const nlohmann::json& x) { return x.is_string(); });
    return require(key, "a short string", is_short_text);
  }
  std::string text(const char* key, const std::string& otherwise) const {
    return has(key) ? text(key) : otherwise;
  }
  bool is_structured(const char* key) const { return has(key) && object_.at(key).is_structured(); }
  /// Both present, and equal.
  bool same(const char* key, const char* other) const {
    return has(key) && has(other) && object_.at(key) == object_.at(other);
  }
  std::vector<std::string> texts(const char* key) const {
    return require(key, "a list of short strings", [](const nlohmann::json& x) {
      return x.is_array() && std::ranges::all_of(x, is_short_text);
    });
  }
  /// Reports a number that the family does not read, where it is not `used`.
  void report_ignored(const char* key, double used) const {
    if (const double given = number(key, used); given != used)
      notice("{}: {} {} is ignored for this model_type; {} is used", where_, key, given, used);
  }
  JsonFields object(const char* key) const {
    const auto is_object = [](const nlohmann::json& x) { return x.is_object(); };
    return {require(key, "an object", is_object), where_ + ": " + key};
  }

 private:
  static bool is_number(const nlohmann::json& x) { return x.is_number(); }
  static bool is_short_text(const nlohmann::json& x) {
    return x.is_string() && shown(x.get<std::string>()) == x.get<std::string>();
  }
  /// The value of a key that must be `kind`.
  const nlohmann::json& require(const char* key, const char* kind,
                                bool (*is_kind)(const nlohmann::json&)) const {
    check(has(key), "{}: {} is missing", where_, key);
    const nlohmann::json& value = object_.at(key);
    check(is_kind(value), "{}: {} must be {}, not {}", where_, key, kind, shown_json(value));
    return value;
  }

  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace focus
