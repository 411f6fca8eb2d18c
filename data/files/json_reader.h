#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace focus {

/// Parses JSON as strictly as a file from outside deserves: duplicate keys and deep nesting are
/// errors too. `where` names the file. Throws std::runtime_error with one line.
nlohmann::json parse_strict_json(std::string_view text, const std::string& where);

/// The same with members in the order of the text, and a whole number beyond 64 bits as the binary
/// value of its digits, so that none is lost.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where);

/// Calls f(row, its number from 1) for each line of JSON Lines that is not blank.
void for_each_row(std::string_view text,
                  const std::function<void(std::string_view row, std::size_t line)>& f);

/// `text` as an error message may quote it: cut where it is long, control characters escaped (a
/// name may hold a line feed, a message is one line), ill-formed UTF-8 replaced.
std::string shown(std::string_view text);
/// The same of a path, which is of no use when it is cut.
std::string shown_whole(std::string_view text);
/// The same in quotation marks.
std::string json_quoted(std::string_view text);
/// A value as it is written into a file, in one line or by `indent` blanks a level: what is not
/// UTF-8 in it, such as a file's name, becomes U+FFFD.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// A value of a JSON file for a message, cut where it is long.
std::string shown_json(const nlohmann::json& value);

/// A value inside a JSON file together with its place ("tokenizer.json: model.vocab"), so that
/// every error says where it is. Readers throw std::runtime_error where the type is another.
class JsonView {
 public:
  JsonView(const nlohmann::json& value, std::string where)
      : value_(&value), where_(std::move(where)) {}

  const nlohmann::json& json() const { return *value_; }
  const std::string& where() const { return where_; }
  bool is_null() const { return value_->is_null(); }

  /// A member that must be there.
  JsonView at(const std::string& key) const;
  /// A member, or null where it is absent.
  JsonView get(const std::string& key) const;
  JsonView item(std::size_t index) const;
  std::size_t array_size() const;
  const nlohmann::json& object() const;
  const std::string& string() const;
  bool boolean() const;
  /// False, or the member's value where it is there and not null.
  bool flag(const std::string& key, bool otherwise = false) const;
  double number() const;
  /// A whole number in [0, limit).
  std::int64_t integer(std::int64_t limit) const;
  /// The position of the text among the names.
  std::size_t choice(std::span<const std::string_view> names) const;

 private:
  void expect(bool ok, std::string_view wanted) const;

  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace focus
