#pragma once

#include <concepts>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/files/json_reader.h"
#include "data/settings/config_values.h"

/// A struct as a JSON object, written and read by one list of its members, `void visit(auto&& f)`:
///   f("perplexity", perplexity);       always written; null: an optional without a value, or a
///                                      double that is no number
///   f.maybe("kl", kl);                 an optional that is left out where it has no value
///   f.part("context", window);         an optional struct whose members are in this object; when
///                                      read it is there if the key is
/// A member is a bool, a whole number, a double, text, an enum with enum_names, a struct with a
/// visit; or a std::optional or std::vector of these; or a list of pairs, the members of an object.
/// A visit may name a value of its own in a member's place: one that another member says too, or
/// that is written in another unit. A key that a struct does not list is passed over in reading.
namespace focus {

class JsonStructWriter;
class JsonStructReader;

template <class T>
concept JsonStruct = requires(T value, JsonStructWriter& writer) {
  value.visit(writer);
};

/// The struct as an object, its keys in the order of its visit.
template <JsonStruct T>
nlohmann::ordered_json struct_to_json(T value);
template <JsonStruct T>
nlohmann::ordered_json structs_to_json(const std::vector<T>& values);

/// Reads an object into a struct. Throws std::runtime_error that names the place of what is missing
/// or of another type.
template <JsonStruct T>
void read_struct(const JsonView& view, T& value);
template <JsonStruct T>
T struct_from_json(const nlohmann::json& json, const std::string& where) {
  T value;
  read_struct(JsonView(json, where), value);
  return value;
}

class JsonStructWriter {
 public:
  template <class T>
  void operator()(const std::string& key, const T& member) {
    json_[key] = json_of(member);
  }
  template <class T>
  void maybe(const std::string& key, const std::optional<T>& member) {
    if (member) json_[key] = json_of(*member);
  }
  template <class T>
  void part(const std::string&, std::optional<T>& member) {
    if (member) member->visit(*this);
  }

  nlohmann::ordered_json json() && { return std::move(json_); }

 private:
  template <class T>
  static nlohmann::ordered_json json_of(const T& value) {
    if constexpr (JsonStruct<T>)
      return struct_to_json(value);
    else if constexpr (ConfigEnum<T>)
      return value_text(value);
    else if constexpr (std::is_same_v<T, double>)  // NaN and infinity are not in JSON
      return value - value == 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
    else
      return value;
  }
  template <class T>
  static nlohmann::ordered_json json_of(const std::optional<T>& value) {
    return value ? json_of(*value) : nlohmann::ordered_json();
  }
  template <class T>
  static nlohmann::ordered_json json_of(const std::vector<T>& values) {
    auto list = nlohmann::ordered_json::array();
    for (const T& value : values) list.push_back(json_of(value));
    return list;
  }
  template <class T>
  static nlohmann::ordered_json json_of(const std::vector<std::pair<std::string, T>>& members) {
    auto object = nlohmann::ordered_json::object();
    for (const auto& [key, value] : members) object[key] = json_of(value);
    return object;
  }

  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

class JsonStructReader {
 public:
  explicit JsonStructReader(const JsonView& view) : view_(view) {}

  template <class T>
  void operator()(const std::string& key, T& member) {
    read(view_.at(key), member);
  }
  /// Null where the key is not there: files of a version that had fewer keys.
  template <class T>
  void operator()(const std::string& key, std::optional<T>& member) {
    read(view_.get(key), member);
  }
  template <class T>
  void maybe(const std::string& key, std::optional<T>& member) {
    member.reset();
    if (view_.object().contains(key)) read(view_.at(key), member.emplace());
  }
  template <class T>
  void part(const std::string& key, std::optional<T>& member) {
    member.reset();
    if (view_.object().contains(key)) member.emplace().visit(*this);
  }

 private:
  template <class T>
  static void read(const JsonView& view, T& value) {
    if constexpr (JsonStruct<T>)
      read_struct(view, value);
    else if constexpr (ConfigEnum<T>)
      value = static_cast<T>(view.choice(enum_names(T{})));
    else if constexpr (std::is_same_v<T, bool>)
      value = view.boolean();
    else if constexpr (std::is_integral_v<T>)
      value = static_cast<T>(view.integer(std::numeric_limits<T>::max()));
    else if constexpr (std::is_same_v<T, double>)
      value = view.is_null() ? std::numeric_limits<double>::quiet_NaN() : view.number();
    else
      value = view.string();
  }
  template <class T>
  static void read(const JsonView& view, std::optional<T>& value) {
    value.reset();
    if (!view.is_null()) read(view, value.emplace());
  }
  template <class T>
  static void read(const JsonView& view, std::vector<T>& values) {
    values.clear();
    for (std::size_t i = 0; i < view.array_size(); ++i) read(view.item(i), values.emplace_back());
  }
  template <class T>
  static void read(const JsonView& view, std::vector<std::pair<std::string, T>>& members) {
    members.clear();
    for (const auto& [key, value] : view.object().items())
      read(view.at(key), members.emplace_back(key, T{}).second);
  }

  const JsonView& view_;
};

template <JsonStruct T>
nlohmann::ordered_json struct_to_json(T value) {
  JsonStructWriter writer;
  value.visit(writer);
  return std::move(writer).json();
}

template <JsonStruct T>
nlohmann::ordered_json structs_to_json(const std::vector<T>& values) {
  auto list = nlohmann::ordered_json::array();
  for (const T& value : values) list.push_back(struct_to_json(value));
  return list;
}

template <JsonStruct T>
void read_struct(const JsonView& view, T& value) {
  view.object();
  JsonStructReader reader(view);
  value.visit(reader);
}

}  // namespace focus
