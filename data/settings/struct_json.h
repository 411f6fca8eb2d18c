#pragma once

#include <limits>
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

/// A struct as an object, its keys in the order of its visit; or a list of them, or a member's
/// value.
template <class T>
nlohmann::ordered_json struct_to_json(const T& value);

/// Reads such a value. Throws std::runtime_error that names the place of what is missing or of
/// another type.
template <class T>
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
    json_[key] = struct_to_json(member);
  }
  template <class T>
  void maybe(const std::string& key, const std::optional<T>& member) {
    if (member) json_[key] = struct_to_json(*member);
  }
  template <class T>
  void part(const std::string&, std::optional<T>& member) {
    if (member) member->visit(*this);
  }

  nlohmann::ordered_json json() && { return std::move(json_); }

 private:
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

class JsonStructReader {
 public:
  explicit JsonStructReader(const JsonView& view) : view_(view) {}

  template <class T>
  void operator()(const std::string& key, T& member) {
    read_struct(view_.at(key), member);
  }
  /// Null where the key is not there: files of a version that had fewer keys.
  template <class T>
  void operator()(const std::string& key, std::optional<T>& member) {
    read_struct(view_.get(key), member);
  }
  template <class T>
  void maybe(const std::string& key, std::optional<T>& member) {
    member.reset();
    if (view_.object().contains(key)) read_struct(view_.at(key), member.emplace());
  }
  template <class T>
  void part(const std::string& key, std::optional<T>& member) {
    member.reset();
    if (view_.object().contains(key)) member.emplace().visit(*this);
  }

 private:
  const JsonView& view_;
};

template <class T>
concept JsonOptional = std::is_same_v<T, std::optional<typename T::value_type>>;
template <class T>
concept JsonList = std::is_same_v<T, std::vector<typename T::value_type>>;
template <class T>
concept JsonPairs = JsonList<T> && !JsonStruct<typename T::value_type> && requires(T value) {
  value.front().second;
};

template <class T>
nlohmann::ordered_json struct_to_json(const T& value) {
  using Json = nlohmann::ordered_json;
  if constexpr (JsonStruct<T>) {
    JsonStructWriter writer;
    T(value).visit(writer);
    return std::move(writer).json();
  } else if constexpr (ConfigEnum<T>) {
    return value_text(value);
  } else if constexpr (std::is_same_v<T, double>) {  // NaN and infinity are not in JSON
    return value - value == 0 ? Json(value) : Json();
  } else if constexpr (JsonOptional<T>) {
    return value ? struct_to_json(*value) : Json();
  } else if constexpr (JsonPairs<T>) {
    Json object = Json::object();
    for (const auto& [key, member] : value) object[key] = struct_to_json(member);
    return object;
  } else if constexpr (JsonList<T>) {
    Json list = Json::array();
    for (const auto& item : value) list.push_back(struct_to_json(item));
    return list;
  } else {
    return value;
  }
}

template <class T>
void read_struct(const JsonView& view, T& value) {
  if constexpr (JsonStruct<T>) {
    view.object();
    JsonStructReader reader(view);
    value.visit(reader);
  } else if constexpr (ConfigEnum<T>) {
    value = static_cast<T>(view.choice(enum_names(T{})));
  } else if constexpr (std::is_same_v<T, bool>) {
    value = view.boolean();
  } else if constexpr (std::is_integral_v<T>) {
    value = static_cast<T>(view.integer(std::numeric_limits<T>::max()));
  } else if constexpr (std::is_same_v<T, double>) {
    value = view.is_null() ? std::numeric_limits<double>::quiet_NaN() : view.number();
  } else if constexpr (JsonOptional<T>) {
    value.reset();
    if (!view.is_null()) read_struct(view, value.emplace());
  } else if constexpr (JsonPairs<T>) {
    value.clear();
    for (const auto& [key, member] : view.object().items())
      read_struct(view.at(key),
                  value.emplace_back(key, typename T::value_type::second_type{}).second);
  } else if constexpr (JsonList<T>) {
    value.clear();
    for (std::size_t i = 0; i < view.array_size(); ++i)
      read_struct(view.item(i), value.emplace_back());
  } else {
    value = view.string();
  }
}

}  // namespace focus
